"""Soft tokens that all questions of a task share: a space of them, and a point of it that was found.

u in R^d -> vectors (m, D), the soft tokens, which begin the answer
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from soft_reasoning.checks import counts, real
from soft_reasoning.engine.base import Engine
from soft_reasoning.schedule.method import Context
from soft_reasoning.schedule.solutions import solution_request
from soft_reasoning.search.embedding import LinearSubspace, gaussian_matrix
from soft_reasoning.task.learnt import Learnt
from soft_reasoning.types import Problem, Request


@dataclass(frozen=True, kw_only=True)
class TaskSpace:
    """A family of soft tokens, the same for every question: x = scale rms A u / sqrt(d).

    A is one Gaussian matrix for all soft tokens together, and rms the embedding table's root mean square.

    Args:
        tokens: m, soft tokens.
        scale: The length of a soft token in units of rms, for u of N(0, I).
        dim: d, dimensions of the search.

    Raises:
        OptionError: For a value out of its range.
    """

    tokens: int = 1
    scale: float = 1.5
    dim: int = 20

    def __post_init__(self) -> None:
        counts(self, "tokens", "dim")
        real("scale", self.scale, above=0.0)

    def bind(self, engine: Engine, seed: int) -> Callable[[Tensor], Tensor]:
        """Return the map from points (n, d) to vectors (n, m, D); ``seed`` draws the matrix A."""
        width = self.tokens * engine.hidden_size
        A = gaussian_matrix(seed, width, self.dim)
        scale = self.scale * engine.embedding_rms / math.sqrt(self.dim)
        linear = LinearSubspace(torch.zeros(1, width), A, scale)
        return lambda U: linear(U).reshape(len(U), self.tokens, engine.hidden_size)


@dataclass(frozen=True, kw_only=True)
class TaskPoint(Learnt):
    """Soft tokens that were found for a task, in a file of plain numbers.

    Attributes:
        vectors: (m, D).
        u: The point in its space.

    Raises:
        OptionError: As for :class:`~soft_reasoning.task.learnt.Learnt`.
    """

    vectors: Sequence[Sequence[float]]
    u: Sequence[float]
    option: ClassVar[str] = "point"
    command: ClassVar[str] = "soft-reasoning tune"
    numbers: ClassVar[Mapping[str, int]] = {"vectors": 2, "u": 1}

    @property
    def hidden_size(self) -> float:
        return len(self.vectors[0])


def task_request(
    soft: Tensor, problem: Problem, context: Context, max_new_tokens: int, **fields: Any
) -> Request:
    """Return the request for a completion after ``soft`` (m, D), at the end of the prompt."""
    end = len(context.prompts.solve(problem).ids)
    return solution_request(problem, context, max_new_tokens, soft=soft, position=end, **fields)
