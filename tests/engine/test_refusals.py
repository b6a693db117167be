"""Models that this engine cannot serve are rejected in one line; of composed ones it serves the text part."""

import re

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from soft_reasoning.engine import loading
from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.types import Request
from tests.engine.models import (
    BASE,
    FAMILIES,
    HYBRIDS,
    INDEXED,
    LINEAR,
    logprobs_of,
    random_ids,
    refusal,
)

OTHER_KINDS = {
    "recurrent_gemma": {"lru_width": 64, "num_hidden_layers": 3},  # keeps its state outside the cache
    "rwkv": {"attention_hidden_size": 64},  # the same
    "xlnet": {"d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 96, "max_position_embeddings": None},
    "bert": {},  # reads in both directions
    "deepseek_v4": INDEXED,  # chooses experts by token ids
    "minimax": {"layer_types": LINEAR, "num_local_experts": 2},  # does not reorder its state
}
REASON = "its logits differ|run from input embeddings, it fails"


@pytest.mark.parametrize("family", OTHER_KINDS)
def test_a_model_of_another_kind_is_refused_in_one_line(family):
    torch.manual_seed(0)
    options = {key: value for key, value in (BASE | OTHER_KINDS[family]).items() if value is not None}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **options)).eval()
    message = refusal(HuggingFaceEngine.from_loaded, model, FakeTokenizer())
    assert re.search(f"cannot serve .*({REASON}).* decoder-only", message)


@pytest.mark.parametrize("family", ["gemma3n_text", "gemma4_text"])
def test_embeddings_of_every_layer_by_token_id_are_refused(family):
    config = AutoConfig.for_model(family, hidden_size_per_layer_input=8)
    assert f"{family}, whose layers also look up" in refusal(loading.check_kind, config)


def test_a_vision_language_model_is_refused_with_the_reason(tmp_path, read_as_fake):
    AutoConfig.for_model("mistral3").save_pretrained(tmp_path)  # Mistral Small from 3.1
    message = refusal(HuggingFaceEngine, str(tmp_path), device="cpu")
    assert "expected a complete causal language model" in message


VISION = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
TOKENS = {"image_token_id": 0, "video_token_id": 1, "audio_token_id": 2}
COMPOSED = {
    "qwen3_5": "qwen3_5_text",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
}


def composed(family, **settings):
    """A model as published, with a vision part beside its text part, which has ``settings``."""
    torch.manual_seed(0)
    text = BASE | (FAMILIES | HYBRIDS)[COMPOSED[family]] | settings
    more = {"vision_config": VISION} if family.startswith("gemma") else {}
    config = AutoConfig.for_model(family, text_config=text, **more, **(TOKENS if family == "gemma4" else {}))
    loading.check_kind(config)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


@pytest.mark.parametrize("family", COMPOSED)
def test_the_text_part_of_a_current_family_is_served(family):
    """Log-probabilities are those of a plain pass."""
    model = composed(family)
    engine = HuggingFaceEngine.from_loaded(model, FakeTokenizer())
    prompts = [random_ids(length, length) for length in (8, 33, 5)]
    asked = [Request(prompt, max_new_tokens=3 + i) for i, prompt in enumerate(prompts)]
    for prompt, got in zip(prompts, engine.generate(asked), strict=True):
        assert got.logprobs == pytest.approx(logprobs_of(model, prompt, got.token_ids), abs=1e-3)
