"""One estimate per answer: the verdicts of all rounds about it, pooled.

A candidate's verdict s in [0, 1] counts s for its answer and 1 - s against it. With a prior Beta(a, b) the
answer of n candidates is right with posterior mean m = (a + yes) / (a + b + yes + no), what the surrogate is
given, and weighs n m in a vote. A verifier that always says the same leaves the order of the votes, whatever
it says: n (a + n) and n a, over a + b + n, grow with n. By m alone n times "no" would count against the
majority. Sharper weights, such as n m / (1 - m), gain more where verdicts are good and lose more where they
are drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.types import Candidate

PRIOR = (0.5, 0.5)
"""a and b, unless given."""


@dataclass(frozen=True)
class Estimate:
    """What is known of one answer.

    Attributes:
        answer: The answer, as its first candidate wrote it.
        members: Indices of its candidates.
        yes: Sum of their verdicts; candidates that were not judged count neither for nor against it.
        no: Sum of 1 - verdict.
        prior: (a, b).
    """

    answer: str
    members: tuple[int, ...]
    yes: float = 0.0
    no: float = 0.0
    prior: tuple[float, float] = PRIOR

    @property
    def mean(self) -> float:
        """Posterior mean of the probability that the answer is right."""
        a, b = self.prior
        return (a + self.yes) / (a + b + self.yes + self.no)

    @property
    def weight(self) -> float:
        """Its weight in a vote."""
        return len(self.members) * self.mean


def same_answers(answers: Sequence[str | None], grader: AnswerGrader, answer_type: str) -> list[list[int]]:
    """Return the indices of equal answers, group by group in order of appearance; None is in no group."""
    groups: list[list[int]] = []
    for i, answer in enumerate(answers):
        if answer is not None:
            same = (group for group in groups if grader.equal(answers[group[0]], answer, answer_type))
            if (group := next(same, None)) is None:
                groups.append([i])
            else:
                group.append(i)
    return groups


def estimates(
    candidates: Sequence[Candidate],
    grader: AnswerGrader,
    answer_type: str,
    prior: Sequence[float] = PRIOR,
) -> list[Estimate]:
    """Return the estimate of each distinct answer, in order of appearance.

    Args:
        candidates: Those of all rounds.
        grader: Says which answers are equal.
        answer_type: Their type.
        prior: (a, b) of the Beta prior.
    """
    found: list[Estimate] = []
    for group in same_answers([c.answer for c in candidates], grader, answer_type):
        scores = [v for i in group if (v := candidates[i].verified) is not None]
        yes = sum(scores)
        answer = candidates[group[0]].answer or ""
        found.append(Estimate(answer, tuple(group), yes, len(scores) - yes, (prior[0], prior[1])))
    return found


def pooled_scores(
    candidates: Sequence[Candidate],
    grader: AnswerGrader,
    answer_type: str,
    prior: Sequence[float] = PRIOR,
) -> list[float | None]:
    """Return each candidate's verdict replaced by the posterior mean of its answer.

    None stays None, and a candidate without an answer keeps its verdict.
    """
    scores = [c.verified for c in candidates]
    for one in estimates(candidates, grader, answer_type, prior):
        for i in one.members:
            scores[i] = None if scores[i] is None else one.mean
    return scores
