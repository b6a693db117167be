"""``torch.set_default_dtype``, which scripts of BoTorch often call: results and the prefix cache stay."""

from contextlib import contextmanager

import pytest
import torch

from soft_reasoning import SoftReasoner
from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.types import Request
from tests.engine.models import random_ids, tiny

DTYPES = (torch.float64, torch.bfloat16, torch.float16)
QUESTION = "Sam has 8 cards. 1) Sam gets 10. 2) Sam loses 5. How many cards does Sam have now?"
FAMILIES = ("llama", "gemma2", "gpt2", "gpt_oss", "deepseek_v3")
CALLS = {
    "default": {},
    "the paper's": {"preset": "paper"},
    "gaussian": {"embedding": "gaussian", "d": 20},
    "cot": {"method": "cot"},
    "rap": {"method": "rap"},
}


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
    "name",
    [name if name in ("default", "cot") else pytest.param(name, marks=pytest.mark.slow) for name in CALLS],
)
def test_a_method_finds_the_same(name):
    expected = solved(CALLS[name])
    with default_dtype(torch.float64):
        assert solved(CALLS[name]) == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_prefixes_are_shared_as_before(family):
    model, prompt = tiny(family), random_ids(70, 1)

    def completions():
        engine = HuggingFaceEngine.from_loaded(model, FakeTokenizer())
        requests = [Request(prompt, max_new_tokens=5), Request(prompt[:40], max_new_tokens=5)]
        return [c for _ in range(2) for c in engine.generate(requests)]

    expected = completions()
    assert sum(c.cached_tokens for c in expected) > 64
    for dtype in DTYPES:
        with default_dtype(dtype):
            assert completions() == expected
