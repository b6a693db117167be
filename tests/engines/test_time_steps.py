"""Mamba-2 layers: transformers bounds time steps from below in a pass over a sequence, not in a step."""

import copy
import math

import pytest
import torch

from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.types import Request
from tests.engines.models import tiny


@pytest.mark.parametrize("family", ["nemotron_h", "zamba2"])
def test_steps_differ_from_a_whole_pass_by_the_bound_alone(family):
    model = tiny(family)
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
    assert distance(model, prompt, unbounded) < 1e-4  # a float32 pass is 4e-5 from a float64 one in zamba2
    for layer in layers:
        layer.time_step_limit = (0.5, math.inf)  # a bound that acts
    assert distance(model, prompt, engine.generate([Request(prompt, max_new_tokens=20)])[0]) > 1e-3


def distance(model, prompt, completion):
    """Largest distance of its log-probabilities from those of a float64 pass over the whole sequence."""
    ids = list(completion.token_ids)
    with torch.no_grad():
        logits = copy.deepcopy(model).double()(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    whole = logits.log_softmax(-1).gather(-1, torch.tensor(ids).unsqueeze(-1)).squeeze(-1)
    return float((torch.tensor(completion.logprobs) - whole).abs().max())
