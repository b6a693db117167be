"""Chain of thought: one greedy solution (Kojima et al. 2022; Wei et al. 2022 with exemplars)."""

from __future__ import annotations

from dataclasses import dataclass

from soft_reasoning.checks import whole
from soft_reasoning.methods.base import read_candidate
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.types import Generate, Problem, Request, Result


@dataclass(frozen=True)
class ChainOfThought:
    """One greedy solution of at most ``max_new_tokens`` tokens (300 in the paper)."""

    max_new_tokens: int = 300
    name: str = "cot"

    def __post_init__(self) -> None:
        whole("max_new_tokens", self.max_new_tokens, least=1)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        prompt = context.prompts.solve(problem)
        request = Request(prompt.ids, max_new_tokens=prompt.most(self.max_new_tokens), stop=prompt.stop)
        [completion] = yield Generate([request])
        candidate = read_candidate(completion, problem, context)
        return Result(candidate.answer, (candidate,))
