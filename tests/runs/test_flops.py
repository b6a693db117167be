"""The estimate of operations: keys and products counted by hand and by PyTorch, backward passes too."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.runs.manifest import rates
from soft_reasoning.runs.metrics import flops
from soft_reasoning.scheduling.gradients import HeadGradient, SoftGradient
from soft_reasoning.types import Request, Result, Usage
from tests.methods.scripted import solve

SIZES = dict(
    vocab_size=50,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)


@pytest.mark.parametrize("tied", [False, True])
def test_the_estimate_is_what_pytorch_counts(tied):
    model = LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=tied, attn_implementation="eager"))
    length = 9
    with FlopCounterMode(display=False) as counter:
        model(torch.arange(length)[None])
    rate = rates(model)
    norms = 2 * (2 * 3 + 1) * 16  # weights that multiply no matrix
    # Counted densely: every position with every key, and the rotary angles (8 frequencies a position).
    dense = length * (rate["position"] - norms) + length * length * rate["key"]
    assert 0 <= counter.get_total_flops() - dense <= 2 * length * 8
    causal = length * rate["position"] + length * (length + 1) // 2 * rate["key"]
    assert flops(Usage.of(length), rate) == causal
    assert flops(Usage.of(7, 4, 5, 3), rate) - flops(Usage.of(7, 4, 5), rate) == flops(
        Usage(1, 0, 2, 1, 21), rate
    )


def test_a_token_passes_through_some_experts_only():
    sizes = SIZES | {"num_local_experts": 8}
    single, double = (
        rates(MixtralForCausalLM(MixtralConfig(**sizes, num_experts_per_tok=k)))["position"] for k in (1, 2)
    )
    assert double - single == 2 * 3 * (3 * 16 * 24)  # layers x (three matrices of an expert), twice


class Follows:
    """Follows the gradient of 500 states and of 2 soft tokens among 5 positions."""

    name = "follows"

    def solve(self, problem, context):
        yield HeadGradient(torch.ones(500, 16), lambda logits, rows: logits.sum())
        yield SoftGradient(Request((1, 2, 3), soft=torch.ones(2, 16)), lambda logits: logits.sum())
        return Result(None, ())


@pytest.mark.parametrize("tied", [False, True])
def test_a_backward_pass_costs_two_passes_more(tied):
    model = LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=tied))
    engine, rate = HuggingFaceEngine.from_loaded(model, FakeTokenizer()), rates(model)
    spent = flops(solve(Follows(), engine).usage["gradient"], rate)
    head = 2 * 50 * 16 * 500  # one pass of the LM head
    soft = 5 * rate["position"] + 15 * rate["key"]
    again = 5 * rate["position"] + 25 * rate["key"]
    assert spent == pytest.approx(3 * head + soft + 2 * again, abs=rate["position"])
