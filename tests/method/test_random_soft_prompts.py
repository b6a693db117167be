"""Random Soft Prompts: what is asked of the engine."""

from types import SimpleNamespace

import pytest
import torch

from soft_reasoning.method.random_soft_prompts import RandomSoftPrompts, moments
from tests.method.scripted import PROBLEM, ScriptedEngine, context_of


def requests_of(method):
    return next(method.solve(PROBLEM, context_of(ScriptedEngine({})))).requests


def test_the_moments_are_those_of_the_table_s_entries():
    engine = ScriptedEngine({})
    rows = engine.embed(range(engine.tokenizer.vocab_size)).double()
    mean, deviation = moments(engine)
    assert mean == pytest.approx(float(rows.mean()), abs=1e-3)
    assert deviation == pytest.approx(float(rows.std()), rel=1e-2)
    engine.tokenizer = SimpleNamespace()  # the table may have more rows than the tokenizer has words
    assert moments(engine) == (mean, deviation)


@pytest.mark.parametrize("scale", [0.0, 1.0, 3.0])
def test_each_candidate_has_gaussian_vectors_of_its_own(scale):
    mean, deviation = moments(ScriptedEngine({}))
    soft = torch.stack([r.soft for r in requests_of(RandomSoftPrompts(samples=40, tokens=6, scale=scale))])
    assert soft.shape == (40, 6, ScriptedEngine({}).hidden_size)
    assert float(soft.mean()) == pytest.approx(mean, abs=4 * scale * deviation / soft.numel() ** 0.5 + 1e-6)
    assert float(soft.std()) == pytest.approx(scale * deviation, rel=0.05, abs=1e-8)
    assert len(soft.flatten(1).unique(dim=0)) == (40 if scale else 1)
