"""Power sampling from rollouts: its conditional is that of p^alpha, by hand and on a scripted model."""

import math

import pytest
import torch

from soft_reasoning.methods.power_lookahead import PowerLookahead, conditional
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.types import Problem
from tests.methods.scripted import END, ScriptedEngine, context_of, solve

ENDS = [" 1", " 2", " 4", " 5", " 6"]
SCRIPT = {"": {" 7": 0.6, " 3": 0.4}, " 7": dict.fromkeys(ENDS, 0.2), " 3": {" 8": 1.0}}
PROBLEMS = [Problem(f"p{i}", "?") for i in range(200)]


def share_of_threes(script=SCRIPT, **options):
    method = PowerLookahead(**{"alpha": 2.0, "candidates": 2, "rollouts": 2, "lookahead": 4} | options)
    results = [r.candidates[0] for _, r in drive(PROBLEMS, method, context_of(ScriptedEngine(script)))]
    return sum(c.text.startswith(" 3") for c in results) / len(results)


def test_it_draws_from_p_to_the_power():
    """p^2: 0.16 against 5 * 0.12^2 = 0.072. Token by token it is 0.16 against 0.36."""
    assert share_of_threes() == pytest.approx(0.16 / 0.232, abs=0.1)


def test_a_token_that_ends_the_solution_has_nothing_after_it():
    assert share_of_threes(SCRIPT | {" 3": {END: 1.0}}) == pytest.approx(0.16 / 0.232, abs=0.1)


@pytest.mark.parametrize(
    ("option", "share"), [({"alpha": 1.0}, 0.4), ({"candidates": 1}, 0.0), ({"alpha": 12.0}, 1.0)]
)
def test_power_and_candidates(option, share):
    assert share_of_threes(**option) == pytest.approx(share, abs=0.1)


def test_the_lookahead_ends_a_rollout_and_the_rollouts_are_counted():
    late = {"": SCRIPT[""], " 7": {" 9": 1.0}, " 7 9": dict.fromkeys(ENDS, 0.2), " 3": {" 8": 1.0}}
    assert share_of_threes(late, lookahead=1) == pytest.approx(0.16 / 0.52, abs=0.1)
    assert share_of_threes(late, lookahead=2) == pytest.approx(0.16 / 0.232, abs=0.1)
    engine = ScriptedEngine(SCRIPT)
    result = solve(PowerLookahead(candidates=2, rollouts=3, lookahead=4, max_new_tokens=1), engine)
    assert len(engine.requests) == 6 and {r.max_new_tokens for r in engine.requests} == {4}
    assert result.candidates[0].finish_reason == "length" and result.candidates[0].generated_tokens == 1


def test_the_jackknife_by_hand():
    """alpha = 2, two tokens of probability 1/2, rollouts of probability (1/2, 1/4) and (1/4, 1/4)."""
    first, rest = torch.tensor([0.5, 0.5]).log(), torch.tensor([[0.5, 0.25], [0.25, 0.25]]).log()
    plain, halves = 0.375 / 0.625, (0.5, 2 / 3)  # of all rollouts; without the first, without the second
    expected = 2 * plain - sum(halves) / 2
    assert conditional(first, rest, 2.0)[0] == pytest.approx(expected)
    assert conditional(first, rest[:, :1], 2.0)[0] == pytest.approx(2 / 3)
    assert math.isclose(float(conditional(first, rest * 40, 4.0).sum()), 1.0)
