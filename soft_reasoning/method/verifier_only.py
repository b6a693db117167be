"""Verifier alone: the verifier's answer when it sees no candidate.

This control shows how much of Soft Reasoning's accuracy comes from the verifier solving the problem itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from soft_reasoning.judge.model_verifier import ModelVerifier
from soft_reasoning.judge.verifier import Verifier
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.schedule.solutions import read_candidate
from soft_reasoning.types import Problem, Result, UserError


@dataclass(frozen=True)
class VerifierOnly:
    """Asks ``verifier`` with an empty list of solutions; its samples are the candidates.

    They vote with the weight of its confidence. The verifier must write a solution of its own.

    Raises:
        UserError: If it only scores candidates.
    """

    verifier: Verifier
    name: str = "verifier_only"

    def __post_init__(self) -> None:
        if not (isinstance(self.verifier, ModelVerifier) and self.verifier.answers_itself):
            raise UserError(
                f"verifier={self.verifier.name}: expected a verifier that writes a solution, got one that "
                "only scores; use multi_generate or single_generate"
            )

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        assert isinstance(self.verifier, ModelVerifier)  # checked when built
        written = yield from self.verifier.answer_alone(problem, context)
        candidates = tuple(
            replace(read_candidate(completion, problem, context), answer=answer)
            for completion, answer, _ in written
        )
        weights = [weight for _, _, weight in written]
        answer = context.grader.vote([c.answer for c in candidates], problem.answer_type, weights)
        return Result(answer, candidates)
