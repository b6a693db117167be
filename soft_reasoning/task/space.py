"""Soft tokens that all questions of a task share: a space of them, and a point of it that was found.

u in R^d -> vectors (m, D) -> soft tokens: the vectors, or a question's greedy tokens plus the vectors
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from soft_reasoning.checks import OptionError, choice, counts, real
from soft_reasoning.engine.base import Engine
from soft_reasoning.prompts import PLACEMENTS
from soft_reasoning.schedule.learnt import Learnt
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.schedule.solutions import greedy_tokens, solution_request
from soft_reasoning.search.embedding import LinearSubspace, SimplexSubspace, gaussian_matrix
from soft_reasoning.types import Problem, Prompt, Request

SCALES = {"vector": 1.5, "offset": 1.0, "mixture": 3.0}
"""The kinds of spaces with their default scales."""


@dataclass(frozen=True, kw_only=True)
class TaskSpace:
    """A family of soft tokens, the same for every question.

    Args:
        kind: ``vector``: x = scale rms A u / sqrt(d), one Gaussian matrix A for all soft tokens together.
            ``offset``: the same, added to each question's greedy first tokens. ``mixture``: each soft token
            is the mixture of the ``dim`` first tokens that are likeliest over the questions, with weights
            softmax(scale u).
        tokens: m, soft tokens.
        scale: In units of the embedding table's root mean square, or the inverse temperature of a mixture.
            None is that of ``SCALES``.
        dim: d, dimensions of the search (of each soft token for a mixture).
        placement: Place of the soft tokens: ``last`` begins the answer, ``first`` is before the question.

    Raises:
        OptionError: For a value out of its range, or an offset that begins no answer.
    """

    kind: str = "vector"
    tokens: int = 1
    scale: float | None = None
    dim: int = 20
    placement: str = "last"

    def __post_init__(self) -> None:
        choice("kind", self.kind, list(SCALES))
        choice("placement", self.placement, PLACEMENTS)
        counts(self, "tokens", "dim")
        if self.scale is not None:
            real("scale", self.scale, above=0.0)
        if self.anchored and self.placement != "last":
            raise OptionError("placement", f"expected last with kind=offset, got {self.placement}")

    @property
    def anchored(self) -> bool:
        """Whether a question's greedy first tokens are added to the vectors."""
        return self.kind == "offset"

    @property
    def likely_tokens(self) -> int:
        """Number of likely first tokens that :meth:`bind` needs."""
        return self.dim if self.kind == "mixture" else 0

    @property
    def dimensions(self) -> int:
        """Dimensions of a point u."""
        return self.dim * (self.tokens if self.kind == "mixture" else 1)

    def bind(self, engine: Engine, seed: int, likely: Sequence[int] = ()) -> Callable[[Tensor], Tensor]:
        """Return the map from points (n, d) to vectors (n, m, D).

        ``seed`` draws the matrix A; ``likely`` are the ids of the likely tokens.
        """
        scale = SCALES[self.kind] if self.scale is None else self.scale
        if self.kind == "mixture":
            return SimplexSubspace(engine.embed(likely).double(), self.tokens, scale)
        width = self.tokens * engine.hidden_size
        A = gaussian_matrix(seed, width, self.dim)
        linear = LinearSubspace(torch.zeros(1, width), A, scale * engine.embedding_rms / math.sqrt(self.dim))
        return lambda U: linear(U).reshape(len(U), self.tokens, engine.hidden_size)


@dataclass(frozen=True, kw_only=True)
class TaskPoint(Learnt):
    """Soft tokens that were found for a task, in a file of plain numbers.

    Attributes:
        vectors: (m, D).
        anchored: Whether each question's greedy first tokens are added to them.
        placement: As in :class:`TaskSpace`.
        u: The point in its space.
    """

    vectors: tuple[tuple[float, ...], ...]
    anchored: bool = False
    placement: str = "last"
    u: tuple[float, ...] = ()
    option: ClassVar[str] = "point"
    command: ClassVar[str] = "soft-reasoning tune"

    @classmethod
    def read(cls, content: dict[str, Any]) -> dict[str, Any]:
        vectors = tuple(tuple(map(float, row)) for row in content["vectors"])
        if len({len(row) for row in vectors}) != 1:
            raise ValueError("expected vectors of one width")
        choice("point.placement", content.get("placement", "last"), PLACEMENTS)
        return {**content, "vectors": vectors, "u": tuple(map(float, content["u"]))}

    def request(
        self, problem: Problem, context: Context, max_new_tokens: int, **fields: Any
    ) -> Steps[Callable[[int], Request]]:
        """Return the requests for completions after the soft tokens, by the index of their random draws."""
        soft = torch.tensor(self.vectors, dtype=torch.float32)
        if self.anchored:
            soft = soft + (yield from greedy_anchor(context.prompts.solve(problem), len(soft), context))
        return lambda index: task_request(
            soft, self.placement, problem, context, max_new_tokens, index=index, **fields
        )


def task_request(
    soft: Tensor, placement: str, problem: Problem, context: Context, max_new_tokens: int, **fields: Any
) -> Request:
    """Return the request for a completion with ``soft`` (m, D) at ``placement``."""
    prompt = context.prompts.solve(problem)
    position = context.prompts.position(prompt, placement, problem, seed=context.seed)
    return solution_request(problem, context, max_new_tokens, soft=soft, position=position, **fields)


def greedy_anchor(prompt: Prompt, count: int, context: Context) -> Steps[Tensor]:
    """Return the embeddings (count, D) of the greedy first tokens."""
    tokens = yield from greedy_tokens(prompt, count)
    return context.engine.embed(tokens)
