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


AGREED, DOUBTFUL, HALVES = (1.0, 1.0, 0.0), (0.3, 0.3, 0.0), (1.0, 0.5, 0.5, 0.0)


@pytest.mark.parametrize(
    ("stopping", "seen", "reason"),
    [
        (Stopping(rule="agreement"), {"agreement": (1.0, 1.0, 0.4, 0.0, 0.0)}, None),
        (Stopping(rule="agreement"), {"agreement": (1.0, 0.5, 0.0, 0.0)}, None),  # just half
        (Stopping(rule="agreement"), {"agreement": HALVES}, "converged"),
        (Stopping(rule="agreement"), {"agreement": (None, None)}, None),  # no verifier
        (Stopping(rule="agreement"), {"agreement": (1.0, 1.0, None)}, "converged"),
        (Stopping(rule="agreement"), {"agreement": AGREED, "scores": DOUBTFUL}, "converged"),
        (Stopping(rule="sure"), {"agreement": AGREED, "scores": AGREED}, "converged"),
        (Stopping(rule="sure"), {"agreement": AGREED, "scores": DOUBTFUL}, None),
        (Stopping(), {"scores": (0.6, 0.6, 0.1), "lead": None}, "converged"),  # texts are not compared
        (Stopping(confidence=0.9), {"lead": 0.89}, None),
        (Stopping(confidence=0.9), {"lead": 0.9}, "converged"),
        (Stopping(rounds=0), {"lead": 0.8}, "rounds"),
    ],
)
def test_rules_of_one_round(stopping, seen, reason):
    assert stopping.reason([[0.0] * 5], **seen) == reason


def test_bad_values():
    for kwargs, word in (
        ({"rounds": -1}, "rounds: expected"),
        ({"confidence": 0.5}, "confidence"),
        ({"rule": "never"}, "agreement, sure, settled, unanimous, improvement, difference, none"),
    ):
        with pytest.raises(UserError, match=word):
            Stopping(**kwargs)
