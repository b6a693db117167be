"""Stopping rules."""

from __future__ import annotations

import pytest

from soft_reasoning.search import Stopping
from soft_reasoning.types import UserError


def test_rounds_count_after_the_first():
    stopping = Stopping(rounds=2, rule="none")
    assert stopping.reason([[1.0]]) is None
    assert stopping.reason([[1.0]] * 2) is None
    assert stopping.reason([[1.0]] * 3) == "rounds"
    assert Stopping(rounds=0).reason([[1.0]]) == "rounds"
    assert Stopping(rounds=2).reason([[1.0]] * 3) == "rounds"


@pytest.mark.parametrize(
    "best, improvement, difference",
    [
        ([1.0], None, None),
        ([1.0, 1.5], None, None),
        ([1.0, 1.005], "converged", "converged"),
        ([1.0, 0.5], "converged", None),  # worse: no improvement, yet far from the round before
        ([1.0, 0.5, 0.9], "converged", None),
        ([1.0, 0.5, 0.501], "converged", "converged"),
        ([1.0, 0.5, 1.2], None, None),
    ],
)
def test_rules(best, improvement, difference):
    rounds = [[value, value - 1] for value in best]
    assert Stopping(rule="improvement").reason(rounds) == improvement
    assert Stopping(rule="difference").reason(rounds) == difference
    assert Stopping(rule="none").reason(rounds) is None


def test_agreement_is_more_than_half_of_the_round():
    for scores, reason in (
        ((1.0, 1.0, 1.0, 0.0, 0.0), "converged"),
        ((1.0, 1.0, 0.4, 0.0, 0.0), None),
        ((1.0, 0.5, 0.0, 0.0), None),  # just half
        ((1.0, 0.5, 0.5, 0.0), "converged"),
        ((None, None), None),  # no verifier
        ((1.0, 1.0, None), "converged"),
    ):
        assert Stopping().reason([[0.0] * len(scores)], agreement=scores) == reason


def test_bad_values():
    for kwargs, word in (
        ({"rounds": -1}, "rounds: expected"),
        ({"threshold": -0.1}, "threshold"),
        ({"rule": "never"}, "agreement, improvement, difference, none"),
    ):
        with pytest.raises(UserError, match=word):
            Stopping(**kwargs)
