"""Models that this engine cannot serve: refused when loaded, in one line that names the reason."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from soft_reasoning.engines import loading
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.types import UserError
from tests.engines.models import BASE, INDEXED, tiny

FAMILIES = {
    "recurrent_gemma": {"lru_width": 64, "num_hidden_layers": 3},  # keeps its state outside the cache
    "rwkv": {"attention_hidden_size": 64},  # the same
    "xlnet": {"d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 96, "max_position_embeddings": None},
    "bert": {},  # reads in both directions
    "deepseek_v4": INDEXED,  # chooses experts by token ids
}
REASON = "its logits differ|run from input embeddings, it fails"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_another_kind_is_refused_in_one_line(family):
    torch.manual_seed(0)
    options = {key: value for key, value in (BASE | FAMILIES[family]).items() if value is not None}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **options)).eval()
    with pytest.raises(UserError, match=f"cannot serve .*({REASON}).* decoder-only") as caught:
        HuggingFaceEngine.from_loaded(model, FakeTokenizer())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("family", ["gemma3n_text", "gemma4_text"])
def test_embeddings_of_every_layer_by_token_id_are_refused(family):
    config = AutoConfig.for_model(family, hidden_size_per_layer_input=8)
    with pytest.raises(UserError, match=f"{family}, whose layers also look up .* choose") as caught:
        loading.refuse(config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("family", ["llava", "mistral3"])  # mistral3: Mistral Small from 3.1
def test_a_vision_language_model_is_refused_with_the_reason(family, tmp_path, monkeypatch):
    AutoConfig.for_model(family).save_pretrained(tmp_path)
    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", lambda *_, **__: FakeTokenizer())
    with pytest.raises(UserError) as caught:
        HuggingFaceEngine(str(tmp_path), device="cpu")
    assert "expected a causal language model" in str(caught.value) and "\n" not in str(caught.value)


def test_eager_attention_of_falcon_with_alibi_is_refused():
    with pytest.raises(UserError, match="adds its position bias twice .*attn_implementation=sdpa"):
        HuggingFaceEngine.from_loaded(tiny("falcon", attn_implementation="eager"), FakeTokenizer())
