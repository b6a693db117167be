"""What is found out about a model when it is loaded."""

import copy
import math
import os
import subprocess
import sys

import pytest
import torch

from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.types import Request
from tests.engines.models import tiny


def test_a_cache_that_is_wrong_once_a_row_has_left_is_served_one_row_at_a_time(caplog):
    """MiniMax keeps a state beside keys and values, which its cache does not reorder."""
    model = tiny("minimax", num_local_experts=2, layer_types=["linear_attention", "full_attention"])
    engine = HuggingFaceEngine.from_loaded(model, FakeTokenizer())
    assert "runs one row at a time" in caplog.text
    requests = [Request(tuple(range(5 + i, 14 + i)), max_new_tokens=2 + i % 5) for i in range(7)]
    for request, got in zip(requests, engine.generate(requests), strict=True):
        ids = torch.tensor([[*request.prompt_ids, *got.token_ids]])
        with torch.no_grad():
            logprobs = model(ids).logits[0, len(request.prompt_ids) - 1 : -1].log_softmax(-1)
        expected = logprobs.gather(-1, torch.tensor(got.token_ids).unsqueeze(-1)).squeeze(-1)
        assert got.logprobs == pytest.approx(expected.tolist(), abs=1e-3)


def test_a_row_alone_is_compared_with_the_row_in_a_batch():
    assert HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer()).batch_invariant
    model = tiny("llama")
    model.lm_head.register_forward_hook(lambda module, given, out: out * (1 + 1e-6 * out.shape[-2]))
    assert not HuggingFaceEngine.from_loaded(model, FakeTokenizer()).batch_invariant
    model = tiny("llama")  # as products of few rows may be
    model.lm_head.register_forward_hook(lambda module, given, out: out * (1 + (out.shape[-2] < 16) / 2**20))
    engine = HuggingFaceEngine.from_loaded(model, FakeTokenizer())
    assert engine.batch_invariant
    assert not HuggingFaceEngine.from_loaded(tiny("qwen2_moe"), FakeTokenizer()).batch_invariant
    requests = [Request((5 + i, 7, 9), max_new_tokens=4) for i in range(20)]
    alone = [engine.generate([request])[0] for request in requests]
    assert engine.generate(requests) == alone


@pytest.mark.parametrize("value", [None, "COMPATIBLE"])
def test_mkl_is_asked_for_reproducible_products_whatever_is_imported_first(value):
    """The user's own value stays."""
    code = (
        "import torch, soft_reasoning, os; print(os.environ['MKL_CBWR']); torch.ones(9, 9) @ torch.ones(9, 9)"
    )
    environment = {name: text for name, text in os.environ.items() if name != "MKL_CBWR"}
    if value:
        environment["MKL_CBWR"] = value
    shown = subprocess.run(
        [sys.executable, "-c", code], env=environment | {"MKL_VERBOSE": "1"}, capture_output=True, text=True
    ).stdout
    assert value in shown if value else ",STRICT" in shown.splitlines()[0]
    if torch.backends.mkl.is_available():
        assert "GEMM(" in shown and "CNR:OFF" not in shown


@pytest.mark.parametrize("family", ["nemotron_h", "zamba2"])
def test_steps_differ_from_a_whole_pass_by_the_bound_alone(family):
    """Mamba-2 layers: transformers bounds time steps from below in a pass over a sequence, not in a step."""
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


def distance(model, prompt, completion):
    """Largest distance of its log-probabilities from those of a float64 pass over the whole sequence."""
    ids = list(completion.token_ids)
    with torch.no_grad():
        logits = copy.deepcopy(model).double()(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    whole = logits.log_softmax(-1).gather(-1, torch.tensor(ids).unsqueeze(-1)).squeeze(-1)
    return float((torch.tensor(completion.logprobs) - whole).abs().max())
