"""Current families as published, with a text and a vision part: exact, or refused in one line."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from soft_reasoning.engines import loading
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.types import Request
from tests.engines.models import BASE, FAMILIES, HYBRIDS, random_ids

VISION = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
          "image_size": 28, "patch_size": 14}  # fmt: skip
TOKENS = {"image_token_id": 0, "video_token_id": 1, "audio_token_id": 2}
COMPOSED = {
    "qwen3_5": "qwen3_5_text", "gemma3": "gemma3_text", "gemma4": "gemma4_text", "llama4": "llama4_text",
}  # fmt: skip


def composed(family: str):
    torch.manual_seed(0)
    text = BASE | (FAMILIES | HYBRIDS)[COMPOSED[family]]
    more = {"vision_config": VISION} if family.startswith("gemma") else {}
    config = AutoConfig.for_model(family, text_config=text, **more, **(TOKENS if family == "gemma4" else {}))
    loading.refuse(config)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


@pytest.mark.parametrize("family", COMPOSED)
def test_log_probabilities_are_those_of_a_plain_pass(family):
    model = composed(family)
    engine = HuggingFaceEngine.from_loaded(model, FakeTokenizer())
    prompts = [random_ids(length, length) for length in (8, 33, 5)]
    asked = [Request(prompt, max_new_tokens=3 + i) for i, prompt in enumerate(prompts)]
    for prompt, got in zip(prompts, engine.generate(asked), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + got.token_ids])).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1).gather(-1, torch.tensor(got.token_ids)[:, None]).squeeze(-1)
        assert got.logprobs == pytest.approx(expected.tolist(), abs=1e-3)
