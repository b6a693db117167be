"""The LM head of many architectures: what it makes of the states is what the whole model says."""

import gc
import weakref

import pytest
import torch
from transformers import AutoConfig, LlamaForCausalLM

from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.engines.loading import eos_ids
from soft_reasoning.methods.since.slot import bias
from soft_reasoning.types import Request, UserError
from tests.engines.models import random_ids, tiny_engine
from tests.engines.test_refusals import COMPOSED, composed

CAP = {"final_logit_softcapping": 5.0}
HEADS = {
    "llama": {},
    "gpt2": {},
    "opt": {},
    "ctrl": {},
    "cohere": {"logit_scale": 0.3},
    "cohere2": {"logit_scale": 2.0},
    "granite": {},
    "granitemoe": {"logits_scaling": 3.0},
    "gemma2": CAP,
    "gemma3_text": CAP,
    "nanochat": CAP,
    "gemma4_text": CAP,
    "falcon_h1": {"lm_head_multiplier": 0.5},
    "minicpm3": {},
    "llama4_text": {},
    "modernbert-decoder": {},
}


def agrees(engine):
    ids = random_ids(12, 3)
    with torch.inference_mode():
        expected = engine.model(torch.tensor([ids])).logits[0].float()
    [states] = engine.hidden_states([Request(ids)])
    assert states.shape == (12, engine.hidden_size)
    assert torch.allclose(engine.lm_head(states), expected, atol=1e-3 * float(expected.abs().max()))
    value, gradient = engine.lm_head_gradient(states, lambda logits, rows: logits[:, 7].sum())
    assert value == pytest.approx(float(expected[:, 7].sum()), rel=1e-2, abs=1e-2)
    assert gradient.shape == states.shape and bool(gradient.isfinite().all()) and float(gradient.norm()) > 0


@pytest.mark.parametrize("family", HEADS)
def test_logits_are_scaled_and_capped_as_in_the_model(family):
    agrees(tiny_engine(family, **HEADS[family]))


@pytest.mark.parametrize("cap", [{}, CAP])
@pytest.mark.parametrize("family", COMPOSED)
def test_those_of_a_composed_model_are_too(family, cap):
    """The settings of its head stand in the text part of its configuration, which not every model reads."""
    agrees(HuggingFaceEngine.from_loaded(composed(family, **cap), FakeTokenizer()))


def test_a_bias_of_capped_logits_is_refused_in_a_composed_model():
    engine = HuggingFaceEngine.from_loaded(composed("gemma4", **CAP), FakeTokenizer())
    steps = bias(5.0 * torch.ones(engine.hidden_size))
    states = next(steps).states
    with pytest.raises(UserError, match="slot: expected a model whose logits are linear"):
        steps.send(engine.lm_head(states))


class Odd(LlamaForCausalLM):
    """Its logits depend on more than the states."""

    def forward(self, *arguments, **options):
        output = super().forward(*arguments, **options)
        output.logits = output.logits + options["inputs_embeds"].mean()
        return output


def test_a_head_that_cannot_be_run_apart_is_refused():
    engine = tiny_engine()
    engine.model.__class__ = Odd
    for read in (lambda: engine.hidden_states([Request((5, 6))]), lambda: engine.lm_head(torch.ones(1, 64))):
        with pytest.raises(UserError, match="layers and LM head can be run apart, got Odd") as error:
            read()
        assert "\n" not in str(error.value)


def test_closing_frees_the_head():
    engine = tiny_engine()
    engine.lm_head(torch.ones(1, 64))
    weight = weakref.ref(engine.model.get_output_embeddings().weight)
    engine.close()
    gc.collect()
    assert weight() is None


def test_the_end_tokens_of_a_composed_model_stand_in_its_text_part():
    config = AutoConfig.for_model("gemma3", text_config={"eos_token_id": [1, 7]}, eos_token_id=None)
    assert config.eos_token_id is None
    model = type("model", (), {"config": config, "generation_config": None})
    assert eos_ids(model, FakeTokenizer()) == {1, 7}
