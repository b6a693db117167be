"""Mamba-2 layers: transformers bounds time steps from below in a pass over a sequence, not in a step."""

import math

import pytest
import torch

from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.types import Request
from tests.engines.models import tiny

FAMILIES = {
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention"], "num_hidden_layers": None, "ssm_state_size": 8,
        "mamba_num_heads": 4, "mamba_head_dim": 16, "head_dim": 16, "n_groups": 1,
    },
    "zamba2": {
        "layers_block_type": ["mamba", "hybrid"], "mamba_d_state": 8, "n_mamba_heads": 4, "num_mem_blocks": 1,
    },
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_steps_differ_from_a_whole_pass_by_the_bound_alone(family):
    model = tiny(family, **FAMILIES[family])
    layers = [layer for layer in model.modules() if hasattr(layer, "time_step_limit")]
    limits = [layer.time_step_limit for layer in layers]
    engine = HuggingFaceEngine.from_loaded(model, FakeTokenizer())
    assert layers and [layer.time_step_limit for layer in layers] == limits  # as they were
    prompt = [(7 * i + 3) % 90 + 5 for i in range(50)]
    expected = model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0, len(prompt) :]
    got = engine.generate([Request(prompt, max_new_tokens=20)])[0]
    assert expected.tolist()[: len(got.token_ids)] == list(got.token_ids)

    for layer in layers:
        layer.time_step_limit = (0.0, math.inf)
    unbounded = engine.generate([Request(prompt, max_new_tokens=20)])[0]
    assert distance(model, prompt, unbounded) < 1e-5
    for layer in layers:
        layer.time_step_limit = (0.5, math.inf)  # a bound that acts
    assert distance(model, prompt, engine.generate([Request(prompt, max_new_tokens=20)])[0]) > 1e-4


def distance(model, prompt, completion):
    """Largest distance of its log-probabilities from those of a pass over the whole sequence."""
    ids = list(completion.token_ids)
    with torch.no_grad():
        logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    whole = logits.log_softmax(-1).gather(-1, torch.tensor(ids).unsqueeze(-1)).squeeze(-1)
    return float((torch.tensor(completion.logprobs) - whole).abs().max())
