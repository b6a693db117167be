"""FIRE: from what its first token is drawn, and what an end-of-sequence one leaves."""

import torch
from scipy.stats import chisquare

from soft_reasoning.engines.output import Output, choose, prepare
from soft_reasoning.methods.self_consistency import SelfConsistency
from tests.methods.scripted import END, PROBLEM, ScriptedEngine, context_of, solve


def fire(**changes):
    """The method of conf/method/fire.yaml."""
    return SelfConsistency(**{"first_temperature": 30.0, "first_top_k": 50} | changes)


def test_first_tokens_follow_the_hot_distribution_of_the_likeliest():
    """Chi-squared on 10^5 of its own requests, drawn as an engine draws."""
    count, k = 100_000, 50
    logits = 20 * torch.randn(80, generator=torch.Generator().manual_seed(0))  # so wide that 30 is felt
    requests = requests_of(fire(samples=count, max_new_tokens=1))
    limits = {"hidden_size": 1, "context_length": 2**20, "vocabulary": 2**20}
    drawn = choose(logits.expand(count, -1), [Output(0, prepare(r, **limits)) for r in requests], [])
    top = logits.topk(k)
    expected = (top.values.double() / 30).softmax(-1)
    seen = torch.bincount(drawn, minlength=len(logits))
    assert int(seen[top.indices].sum()) == count
    assert chisquare(seen[top.indices].double(), count * expected).pvalue > 1e-3


def requests_of(method):
    return next(method.solve(PROBLEM, context_of(ScriptedEngine({})))).requests


def test_a_first_token_that_ends_leaves_an_empty_solution_that_does_not_vote():
    script = {"": {END: 0.5, " We": 0.5}, " We": {" 7": 1.0}}
    result = solve(fire(samples=40), ScriptedEngine(script))
    found = {(c.text, c.answer) for c in result.candidates}
    assert found == {("", None), (" We 7", "7")} and result.answer == "7"
    assert len(result.candidates) == 40

    result = solve(fire(), ScriptedEngine({"": {END: 1.0}}))
    assert result.answer is None and [c.text for c in result.candidates] == [""] * 5
