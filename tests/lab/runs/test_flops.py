"""The estimate of operations: keys and products counted by hand and by PyTorch."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from soft_reasoning.lab.runs.manifest import rates
from soft_reasoning.lab.runs.metrics import flops
from soft_reasoning.types import Usage

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
