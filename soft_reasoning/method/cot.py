"""Chain of thought: one greedy solution (Kojima et al. 2022; Wei et al. 2022 with exemplars)."""

from __future__ import annotations

from dataclasses import dataclass

from soft_reasoning.checks import whole
from soft_reasoning.method.base import majority_vote
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.schedule.solutions import solution_request
from soft_reasoning.types import MAX_NEW_TOKENS, Generate, Problem, Result


@dataclass(frozen=True)
class ChainOfThought:
    """One greedy solution of at most ``max_new_tokens`` tokens (300 in the paper, 512 by default)."""

    max_new_tokens: int = MAX_NEW_TOKENS
    name: str = "cot"

    def __post_init__(self) -> None:
        whole("max_new_tokens", self.max_new_tokens, least=1)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        completions = yield Generate([solution_request(problem, context, self.max_new_tokens)])
        return majority_vote(completions, problem, context)
