"""Votes and approval of answers, and what verifiers that know nothing, or much, do to a vote."""

import math
import random

import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.judge.final import FinalAnswer, SearchHistory, lead_probability
from soft_reasoning.judge.verifier import Verdict
from soft_reasoning.types import Candidate


def known(*rows):
    """Rows of (answer, verdict)."""
    seen = [
        Candidate("", answer, 0, coherence=0.5, verified=v, reward=(v or 0.0) + 0.5) for answer, v in rows
    ]
    return SearchHistory(seen, [Verdict(tuple(v for _, v in rows))], Grader())


def test_the_approval_of_an_answer_is_the_sum_of_its_verdicts_or_its_votes():
    seen = known(("18", 0.9), ("9", 0.2), (None, 0.7), ("18.0", 0.5), ("7", None), ("7", None), ("9", None))
    assert seen.approval() == pytest.approx([1.4, 0.2, 2])


def question(rng):
    """The answers of 15 candidates; the right answer, 0, has a share of them, and the others the rest."""
    share = rng.random()
    return [0 if rng.random() < share else rng.randint(1, 4) for _ in range(15)]


@pytest.mark.parametrize("score", [1.0, 0.0, 0.3])
def test_a_verifier_that_always_says_the_same_leaves_the_majority(score):
    rng = random.Random(1)
    for _ in range(100):
        seen = known(*[(str(answer), score) for answer in question(rng)])
        assert FinalAnswer("reward_vote").choose(seen) == FinalAnswer("vote").choose(seen)


def test_the_lead_of_a_vote_by_its_closed_form():
    """P(p > 1/2) for p ~ Beta(a + 1, b + 1) is that of at most a heads in a + b + 1 throws of a coin."""
    for a, b in ((5, 0), (4, 1), (3, 2), (7, 2)):
        throws = a + b + 1
        assert lead_probability([1.0 * b, 1.0 * a]) == pytest.approx(
            sum(math.comb(throws, heads) for heads in range(a + 1)) / 2**throws
        )
    assert lead_probability([]) == lead_probability([2.0, 2.0, 1.0]) == pytest.approx(0.5)
