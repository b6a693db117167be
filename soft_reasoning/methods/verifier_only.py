"""Verifier alone: what the verifier answers when no candidate is shown to it.

The control that tells how much of Soft Reasoning's accuracy is the verifier solving the problem itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from soft_reasoning.methods.base import read_candidate
from soft_reasoning.rewards.verifiers import Verifier
from soft_reasoning.types import Result, UserError


@dataclass(frozen=True)
class VerifierOnly:
    """``verifier``'s prompt with an empty list of solutions; its samples are the candidates, and vote with
    the weight that its confidence gives them. Only verifiers that write an answer of their own fit."""

    verifier: Verifier
    name: str = "verifier_only"

    def __post_init__(self) -> None:
        if not getattr(self.verifier, "answers_itself", False):
            raise UserError(f"verifier={self.verifier.name}: expected a verifier with an answer of its own, "
                            "got one that only scores; use multi_generate or single_generate")  # fmt: skip

    def solve(self, problem, context):
        found = yield from self.verifier.answer_alone(problem, context, stage="alone")
        candidates = tuple(
            replace(read_candidate(completion, problem, context), answer=answer)
            for completion, answer, _ in found
        )
        weights = [weight for _, _, weight in found]
        answer = context.grader.vote([c.answer for c in candidates], problem.answer_type, weights)
        return Result(answer, candidates)
