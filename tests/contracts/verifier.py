"""What every verifier must do; a test file parametrises over these.

Each function takes a verifier and a context, such as that of ``contracts.method.fake_context``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from soft_reasoning.judge.verifier import Verifier
from soft_reasoning.method.rounds import Rounds, VerifiedMethod
from soft_reasoning.method.verified_sampling import VerifiedSampling
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.search.stopping import Stopping
from soft_reasoning.types import Candidate, Problem, Result
from tests.contracts.method import PROBLEMS, results


def judged(
    verifier: Verifier, context: Context, problems: Sequence[Problem] = PROBLEMS
) -> dict[str, tuple[Candidate, ...]]:
    """Each problem's candidates by its id: two rounds of three samples under the verifier."""
    rounds = Stopping(rounds=1, rule="none")
    method = VerifiedSampling(verifier=verifier, samples=3, max_new_tokens=30, stopping=rounds)
    return {name: tuple(result.candidates) for name, result in results(method, context, problems).items()}


@dataclass(frozen=True, kw_only=True)
class _Unread(VerifiedMethod):
    """A round of two candidates without an answer."""

    name: str = "unread"

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        rounds = Rounds(self, problem, context)
        yield from rounds.verify([Candidate("I do not know.", None, 0)] * 2)
        return rounds.result()


def scores_lie_between_0_and_1(verifier: Verifier, context: Context) -> None:
    scores = [c.verified for candidates in judged(verifier, context).values() for c in candidates]
    assert len(scores) == 6 * len(PROBLEMS)
    assert all(score is None or 0 <= score <= 1 for score in scores)


def candidates_without_an_answer_are_not_called_right(verifier: Verifier, context: Context) -> None:
    for result in results(_Unread(verifier=verifier), context).values():
        assert [candidate.verified or 0.0 for candidate in result.candidates] == [0.0, 0.0]


def a_problem_alone_gets_the_scores_that_it_gets_among_others(verifier: Verifier, context: Context) -> None:
    together = judged(verifier, context)
    for problem in PROBLEMS:
        assert judged(verifier, context, [problem]) == {problem.id: together[problem.id]}


def the_reference_answer_is_not_read(verifier: Verifier, context: Context) -> None:
    other = [replace(problem, gold="-1") for problem in PROBLEMS]
    assert judged(verifier, context, other) == judged(verifier, context)
