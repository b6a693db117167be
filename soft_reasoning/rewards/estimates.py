"""One estimate per answer: the verdicts of all rounds about it, pooled.

A candidate's verdict s in [0, 1] counts s for its answer and 1 - s against it. With a prior Beta(a, b) the
verdicts about the answer of n candidates have the posterior mean m = (a + yes) / (a + b + yes + no), what the
surrogate is given. In a vote the answer weighs n m, or n m / (1 - m) with a prior that ``fit_prior`` made of
other problems. A verifier that always says the same leaves the order of the votes, whatever it says, since
both grow with n. By m alone n times "no" would count against the majority. The odds gain more where verdicts
are good and lose more where they are drawn at random, unless the prior knows which of the two is the case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize  # pyright: ignore[reportMissingTypeStubs]
from scipy.special import betaln  # pyright: ignore[reportMissingTypeStubs]

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.rewards.verifiers import Verdict
from soft_reasoning.types import Candidate

Beta = tuple[float, float]
PRIOR: Beta = (0.5, 0.5)
"""a and b, unless fitted."""
LIMITS = (-4.0, 7.0)
"""Of log a and log b."""


@dataclass(frozen=True)
class Estimate:
    """What is known of one answer.

    Attributes:
        answer: The answer, as its first candidate wrote it.
        members: Indices of its candidates.
        yes: Sum of their verdicts; candidates that were not judged count neither for nor against it.
        no: Sum of 1 - verdict.
        prior: (a, b) if fitted to other problems; None is ``PRIOR``.
    """

    answer: str
    members: tuple[int, ...]
    yes: float = 0.0
    no: float = 0.0
    prior: Beta | None = None

    @property
    def mean(self) -> float:
        """Posterior mean of the verdict on the answer."""
        a, b = self.prior or PRIOR
        return (a + self.yes) / (a + b + self.yes + self.no)

    @property
    def weight(self) -> float:
        """Its weight in a vote."""
        return len(self.members) * (self.mean / (1 - self.mean) if self.prior else self.mean)


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


@dataclass(frozen=True)
class Judged:
    """What is known of a problem after some rounds: what final rules, estimates and stopping read.

    Attributes:
        candidates: Those of all rounds.
        verdicts: One per round.
        grader: Says which answers are equal.
        answer_type: Their type.
    """

    candidates: Sequence[Candidate]
    verdicts: Sequence[Verdict]
    grader: AnswerGrader
    answer_type: str = "number"

    def estimates(self, prior: Beta | None = None) -> list[Estimate]:
        """Return the estimate of each distinct answer, in order of appearance, under a prior (a, b)."""
        found: list[Estimate] = []
        for group in same_answers([c.answer for c in self.candidates], self.grader, self.answer_type):
            scores = [v for i in group if (v := self.candidates[i].verified) is not None]
            answer = self.candidates[group[0]].answer or ""
            found.append(Estimate(answer, tuple(group), sum(scores), len(scores) - sum(scores), prior))
        return found

    def pooled_scores(self, prior: Beta | None = None) -> list[float | None]:
        """Return each candidate's verdict replaced by the posterior mean of its answer.

        None stays None, and a candidate without an answer keeps its verdict.
        """
        scores = [c.verified for c in self.candidates]
        for one in self.estimates(prior):
            for i in one.members:
                scores[i] = None if scores[i] is None else one.mean
        return scores


def fit_prior(found: Iterable[Estimate]) -> Beta:
    """Return the a and b under which the verdicts about other problems' answers are likeliest.

    The likelihood is the beta-binomial's, the labels are not read: a verifier that tells answers apart says
    yes to all candidates of one and no to all of another, so a and b are small. One that says yes at random,
    or always, says it equally often of every answer; a and b are large then, and the vote is the majority's.
    """
    counts = np.array([(one.yes, one.no) for one in found if one.yes + one.no > 0]).reshape(-1, 2)

    def unlikely(logs: np.ndarray) -> float:
        prior = np.exp(logs)
        return -float(np.sum(betaln(*(prior + counts).T) - betaln(*prior)))

    start = np.log(PRIOR)
    best = minimize(unlikely, start, method="L-BFGS-B", bounds=[LIMITS] * 2) if len(counts) else None
    a, b = np.exp(start if best is None else best.x)
    return float(a), float(b)
