"""One greedy solution, or several samples and a majority vote.

- ``method=cot``: chain of thought (Kojima et al. 2022; Wei et al. 2022 with exemplars).
- ``method=self_consistency`` (Wang et al. 2023).
- ``method=fire``: a high temperature of the first token (Chen et al. 2024).
- ``method=several_temperatures`` (arXiv 2510.02611): each solves some problems that the others do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soft_reasoning.checks import OptionError, check_sampling, counts, real
from soft_reasoning.method.base import majority_vote
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.schedule.solutions import SamplingOptions, solution_request
from soft_reasoning.types import MAX_NEW_TOKENS, Generate, Problem, Result, Sampling


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
        temperatures: Temperatures of successive samples, which replace ``temperature``.
        first_temperature: Temperature of the first token; None is the sample's temperature.
        first_top_k: Number of likeliest tokens for the first token; 0 is off, None is ``top_k``.
    """

    samples: int = 5
    first_temperature: float | None = None
    first_top_k: int | None = None
    temperatures: Sequence[float] | None = None
    name: str = "self_consistency"

    def __post_init__(self) -> None:
        counts(self, "samples", "max_new_tokens")
        check_sampling(self)
        if not isinstance(self.temperatures, Sequence | None) or isinstance(self.temperatures, str):
            raise OptionError("temperatures", f"expected a list of temperatures, got {self.temperatures!r}")
        if self.temperatures is not None and not self.temperatures:
            raise OptionError("temperatures", "expected one or more, got none; leave it out")
        for temperature in self.temperatures or ():
            real("temperatures", temperature, above=0.0)
        Sampling(first_temperature=self.first_temperature, first_top_k=self.first_top_k)

    @property
    def needs(self) -> set[str]:
        """What it needs of an engine."""
        return Sampling(0, 0, 1, self.first_temperature, self.first_top_k).needs

    @property
    def independent(self) -> bool:
        """Whether candidates are i.i.d., so that pass@m can be estimated."""
        return not self.temperatures

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        temperatures = self.temperatures or (self.temperature,)
        first = self.first_temperature, self.first_top_k
        sampling = [Sampling(t, self.top_k, self.top_p, *first) for t in temperatures]
        requests = [
            solution_request(
                problem, context, self.max_new_tokens, index=i, sampling=sampling[i % len(sampling)]
            )
            for i in range(self.samples)
        ]
        completions = yield Generate(requests)
        return majority_vote(completions, problem, context)
