"""FIRE: a first token at high temperature, then ordinary sampling and a majority vote (Chen et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from soft_reasoning.checks import real, whole
from soft_reasoning.context import Context
from soft_reasoning.methods.base import Steps, check_sampling, read_candidate, sampled
from soft_reasoning.types import Generate, Problem, Result, Sampling


@dataclass(frozen=True)
class Fire:
    """Samples solutions whose first token has its own temperature, and takes a majority vote.

    At temperature 30 the draw is nearly uniform over the ``first_top_k`` likeliest tokens (0: the whole
    vocabulary). A first token that ends the sequence gives an empty solution, which does not vote.

    Args:
        samples: Number of solutions.
        first_temperature: Temperature of the first token.
        first_top_k: Likeliest tokens that the first token is drawn from; 0 is off.
        temperature: Temperature of the other tokens, as for self-consistency.
        top_k: Likeliest tokens that these are drawn from; 0 is off.
        top_p: Their total probability; 1 is off.
        max_new_tokens: Tokens per solution.
    """

    samples: int = 5
    first_temperature: float = 30.0
    first_top_k: int = 50
    temperature: float = 0.8
    top_k: int = 50
    top_p: float = 1.0
    max_new_tokens: int = 300
    name: str = "fire"
    independent: ClassVar[bool] = True  # candidates are i.i.d., so pass@m can be estimated

    def __post_init__(self) -> None:
        for key in ("samples", "max_new_tokens"):
            whole(f"method.{key}", getattr(self, key), least=1)
        check_sampling(self)
        fix = "method=cot is the greedy one"
        real("method.first_temperature", self.first_temperature, above=0.0, fix=fix)
        whole("method.first_top_k", self.first_top_k, least=0)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        sampling = Sampling(
            self.temperature, self.top_k, self.top_p, self.first_temperature, self.first_top_k
        )
        completions = yield Generate(sampled(problem, context, sampling, self.samples, self.max_new_tokens))
        candidates = tuple(read_candidate(c, problem, context) for c in completions)
        return Result(context.grader.vote([c.answer for c in candidates], problem.answer_type), candidates)
