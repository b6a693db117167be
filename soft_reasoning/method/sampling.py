"""One greedy solution, or several samples and a majority vote.

- ``method=cot``: chain of thought (Kojima et al. 2022; Wei et al. 2022 with exemplars).
- ``method=self_consistency`` (Wang et al. 2023).
- ``method=fire``: a high temperature of the first token (Chen et al. 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from soft_reasoning.checks import counts
from soft_reasoning.method.base import majority_vote
from soft_reasoning.schedule.method import Context, Generate, Steps
from soft_reasoning.schedule.solutions import SamplingOptions, sample_solutions, solution_request
from soft_reasoning.types import MAX_NEW_TOKENS, Problem, Result, Sampling


@dataclass(frozen=True)
class ChainOfThought:
    """One greedy solution of at most ``max_new_tokens`` tokens (300 in the paper, 512 by default)."""

    max_new_tokens: int = MAX_NEW_TOKENS
    name: str = "cot"

    def __post_init__(self) -> None:
        counts(self, "max_new_tokens")

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        completions = yield Generate([solution_request(problem, context, self.max_new_tokens)])
        return majority_vote(completions, problem, context)


@dataclass(frozen=True, kw_only=True)
class SelfConsistency(SamplingOptions):
    """Samples solutions and takes a majority vote; unparsed answers do not vote, the earliest wins a tie.

    The paper uses 5 samples at temperatures 0.4, 0.6 and 0.8. FIRE draws the first token at temperature 30,
    nearly uniformly from the likeliest tokens. The other options are those of :class:`SamplingOptions`.

    Args:
        samples: Number of solutions.
        first_temperature: Temperature of the first token; None is ``temperature``.
        first_top_k: Number of likeliest tokens for the first token; 0 is off, None is ``top_k``.
    """

    samples: int = 5
    first_temperature: float | None = None
    first_top_k: int | None = None
    name: str = "self_consistency"
    independent: ClassVar[bool] = True  # candidates are i.i.d., so pass@m can be estimated

    def __post_init__(self) -> None:
        super().__post_init__()
        counts(self, "samples")
        Sampling(0, 0, 1, self.first_temperature, self.first_top_k)  # which checks them

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        first = self.first_temperature, self.first_top_k
        return Sampling(self.temperature, self.top_k, self.top_p, *first)

    @property
    def needs(self) -> set[str]:
        """What it needs of an engine."""
        return self.sampling.needs

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        completions = yield from sample_solutions(
            problem, context, self.max_new_tokens, self.sampling, range(self.samples)
        )
        return majority_vote(completions, problem, context)
