"""``torch.set_default_dtype``, which scripts of BoTorch often call: results and the prefix cache stay."""

from contextlib import contextmanager

import pytest
import torch

from soft_reasoning import SoftReasoner
from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.types import Request
from tests.engine.models import random_ids, tiny

QUESTION = "Sam has 8 cards. 1) Sam gets 10. 2) Sam loses 5. How many cards does Sam have now?"


@contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def solved(options):
    with SoftReasoner.from_pretrained("demo", max_new_tokens=12, **options) as reasoner:
        solution = reasoner.solve(QUESTION)
    return [(c.text, c.reward, c.coherence) for c in solution.candidates], solution.total.cached_tokens


@pytest.mark.parametrize(
    "options", [{}, {"method": "cot"}, pytest.param({"preset": "paper"}, marks=pytest.mark.slow)]
)
def test_a_method_finds_the_same(options):
    expected = solved(options)
    with default_dtype(torch.float64):
        assert solved(options) == expected


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss"])
def test_prefixes_are_shared_as_before(family):
    model, prompt = tiny(family), random_ids(70, 1)

    def completions():
        engine = HuggingFaceEngine.from_loaded(model, FakeTokenizer())
        requests = [Request(prompt, max_new_tokens=5), Request(prompt[:40], max_new_tokens=5)]
        return [c for _ in range(2) for c in engine.generate(requests)]

    expected = completions()
    assert sum(c.cached_tokens for c in expected) > 64
    for dtype in (torch.float64, torch.bfloat16):
        with default_dtype(dtype):
            assert completions() == expected
