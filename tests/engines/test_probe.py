"""What is found out about a model when it is loaded."""

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
