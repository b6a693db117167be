"""Decoding after soft tokens that were found for the whole task, at the price of plain decoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import ClassVar

import torch

from soft_reasoning.checks import counts, real
from soft_reasoning.method.base import majority_vote
from soft_reasoning.schedule.method import Context, Generate, Steps
from soft_reasoning.schedule.solutions import SamplingOptions
from soft_reasoning.task.space import TaskPoint, task_request
from soft_reasoning.types import Problem, Result, Sampling


@dataclass(frozen=True, kw_only=True)
class SoftToken(SamplingOptions):
    """Puts a task's soft tokens in the prompt, then decodes.

    The other options are those of :class:`SamplingOptions`.

    Args:
        point: The soft tokens, or a file of them that ``soft-reasoning tune`` wrote. A point of another model
            or prompt is refused.
        samples: Number of solutions; their majority is the answer.
        temperature: Sampling temperature; 0 is one greedy solution.

    Raises:
        OptionError: For a value out of its range, or a file without a point.
    """

    point: TaskPoint | str | PathLike[str]
    samples: int = 1
    temperature: float = 0.0
    name: str = "soft_token"
    short: ClassVar[Mapping[str, str]] = {**SamplingOptions.short, "point": "point"}
    needs: ClassVar[frozenset[str]] = frozenset({"rows"})
    independent: ClassVar[bool] = True  # candidates are i.i.d., so pass@m can be estimated

    def __post_init__(self) -> None:
        counts(self, "samples", "max_new_tokens")
        Sampling(self.temperature, self.top_k, self.top_p)  # which checks them
        if self.samples > 1:
            real("temperature", self.temperature, above=0.0, fix="several greedy solutions are equal")
        object.__setattr__(self, "point", TaskPoint.load(self.point))

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        point = TaskPoint.load(self.point)
        point.check_fits(context)
        soft = torch.tensor(point.vectors, dtype=torch.float32)
        requests = [
            task_request(soft, problem, context, self.max_new_tokens, index=i, sampling=self.sampling)
            for i in range(self.samples)
        ]
        completions = yield Generate(requests)
        return majority_vote(completions, problem, context)
