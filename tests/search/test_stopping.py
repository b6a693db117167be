"""Stopping rules."""

from __future__ import annotations

import math

import pytest

from soft_reasoning.search import Stopping
from soft_reasoning.search.stopping import settled
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
        rule = Stopping(rule="agreement")
        assert rule.reason([[0.0] * len(scores)], agreement=scores) == reason


def test_bad_values():
    for kwargs, word in (
        ({"rounds": -1}, "rounds: expected"),
        ({"threshold": -0.1}, "threshold"),
        ({"confidence": 0.5}, "confidence"),
        ({"rule": "never"}, "agreement, sure, settled, unanimous, improvement, difference, none"),
    ):
        with pytest.raises(UserError, match=word):
            Stopping(**kwargs)


def test_a_settled_vote_by_its_closed_form():
    """P(p > 1/2) for p ~ Beta(a + 1, b + 1) is that of at most a heads in a + b + 1 throws of a coin."""
    for a, b in ((5, 0), (4, 1), (3, 2), (7, 2)):
        throws = a + b + 1
        assert settled([1.0 * b, 1.0 * a]) == pytest.approx(
            sum(math.comb(throws, heads) for heads in range(a + 1)) / 2**throws
        )
    assert settled([]) == settled([2.0, 2.0, 1.0]) == pytest.approx(0.5)


def test_texts_that_cannot_be_compared_end_when_the_verifier_is_sure():
    sure, unsure = (Stopping().reason([[1.0] * 3], scores=[p, p, 0.1], votes=None) for p in (0.6, 0.4))
    assert (sure, unsure) == ("converged", None)


def test_a_search_ends_once_the_vote_is_settled():
    rounds, ends = [[0.0] * 5], {}
    for confidence in (0.9, 0.95, 0.99):
        rule = Stopping(rule="settled", confidence=confidence)
        ends[confidence] = [rule.reason(rounds, votes=[first, 1.0]) for first in (3.0, 6.0, 9.0)]
    assert ends[0.9] == [None, "converged", "converged"]
    assert ends[0.95] == [None, "converged", "converged"] and ends[0.99] == [None, None, "converged"]
    assert Stopping(rounds=0, rule="settled").reason(rounds, votes=[3.0, 1.0]) == "rounds"


def test_a_sure_verifier_is_more_than_one_that_agrees():
    agreed, doubtful = (1.0, 1.0, 0.0), (0.3, 0.3, 0.0)
    for scores, reason in ((doubtful, None), (agreed, "converged")):
        more = {"agreement": agreed, "scores": scores}
        assert Stopping(rule="sure").reason([[0.0] * 3], **more) == reason
        assert Stopping(rule="agreement").reason([[0.0] * 3], **more) == "converged"
