"""Soft tokens that all questions of a task share: a space of them, and a point of it that was found.

u in R^d -> vectors (m, D) -> soft tokens, which begin the answer: the vectors, or a question's greedy tokens
plus the vectors
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from soft_reasoning.checks import OptionError, counts, real, switch
from soft_reasoning.engine.base import Engine
from soft_reasoning.learnt import Learnt, vector
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.schedule.solutions import greedy_tokens, solution_request
from soft_reasoning.search.embedding import LinearSubspace, gaussian_matrix
from soft_reasoning.types import Problem, Request


@dataclass(frozen=True, kw_only=True)
class TaskSpace:
    """A family of soft tokens, the same for every question: x = scale rms A u / sqrt(d).

    A is one Gaussian matrix for all soft tokens together, and rms the embedding table's root mean square.

    Args:
        tokens: m, soft tokens.
        scale: The length of a soft token in units of rms, for u of N(0, I).
        dim: d, dimensions of the search.
        anchored: Whether x is added to each question's greedy first tokens.

    Raises:
        OptionError: For a value out of its range.
    """

    tokens: int = 1
    scale: float = 1.5
    dim: int = 20
    anchored: bool = False

    def __post_init__(self) -> None:
        counts(self, "tokens", "dim")
        real("scale", self.scale, above=0.0)
        switch("anchored", self.anchored)

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
        anchored: Whether each question's greedy first tokens are added to them.

    Raises:
        OptionError: As for :class:`~soft_reasoning.learnt.Learnt`.
    """

    vectors: Sequence[Sequence[float]]
    u: Sequence[float]
    anchored: bool = False
    option: ClassVar[str] = "point"
    command: ClassVar[str] = "soft-reasoning tune"

    def __post_init__(self) -> None:
        super().__post_init__()
        switch("anchored", self.anchored)
        rows: Any = self.vectors
        if not isinstance(rows, list | tuple) or not rows:
            raise OptionError("vectors", f"expected one or more vectors, got {rows!r:.40}")
        vectors = tuple(vector("vectors", row) for row in rows)
        if len({len(row) for row in vectors}) > 1:
            raise OptionError("vectors", "expected vectors of one width, got several")
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "u", vector("u", self.u))

    @property
    def hidden_size(self) -> float:
        return len(self.vectors[0])

    def request(
        self, problem: Problem, context: Context, max_new_tokens: int, **fields: Any
    ) -> Steps[Callable[[int], Request]]:
        """Return the requests for completions after the soft tokens, by the index of their random draws."""
        soft = torch.tensor(self.vectors, dtype=torch.float32)
        if self.anchored:
            soft = soft + (yield from greedy_anchor(problem, len(soft), context))
        return lambda index: task_request(soft, problem, context, max_new_tokens, index=index, **fields)


def task_request(
    soft: Tensor, problem: Problem, context: Context, max_new_tokens: int, **fields: Any
) -> Request:
    """Return the request for a completion after ``soft`` (m, D), at the end of the prompt."""
    end = len(context.prompts.solve(problem).ids)
    return solution_request(problem, context, max_new_tokens, soft=soft, position=end, **fields)


def greedy_anchor(problem: Problem, count: int, context: Context) -> Steps[Tensor]:
    """Return the embeddings (count, D) of the greedy first tokens."""
    tokens = yield from greedy_tokens(context.prompts.solve(problem), count)
    return context.engine.embed(tokens)
