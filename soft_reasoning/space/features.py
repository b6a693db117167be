"""Features: the surrogate's inputs for a point.

The reward is piecewise constant over u: many points give the same text. So the surrogate's kernel may use
the model's reaction to a point in place of u. The reaction is read from a look, a request that the engine
answers for all points of a question's :class:`~soft_reasoning.space.pool.PointPool` in one batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from soft_reasoning.checks import whole
from soft_reasoning.types import GREEDY, Completion, Request

ROLE = "look"
"""The role under which the tokens of looks are counted."""


class Features(Protocol):
    """Turns a point into a row of numbers."""

    def look(self, request: Request) -> Request | None:
        """Return the request that looks at the point of ``request``; None if features need no look."""
        ...

    def rows(self, points: Tensor, soft: Tensor, looks: Sequence[Completion]) -> Tensor:
        """Return the features (n, F) of points; a kernel uses their distances.

        The meaning of the columns may differ between calls.

        Args:
            points: (n, d) float64.
            soft: (n, m, D) their soft tokens.
            looks: Completions of the requests from :meth:`look`; empty without requests.
        """
        ...


@dataclass(frozen=True)
class PointFeatures:
    """The point u itself (the paper)."""

    def look(self, request: Request) -> Request | None:
        return None

    def rows(self, points: Tensor, soft: Tensor, looks: Sequence[Completion]) -> Tensor:
        return points.double()


@dataclass(frozen=True)
class SoftTokenFeatures:
    """The soft tokens that the model reads."""

    def look(self, request: Request) -> Request | None:
        return None

    def rows(self, points: Tensor, soft: Tensor, looks: Sequence[Completion]) -> Tensor:
        return soft.double().flatten(1)


@dataclass(frozen=True)
class NextTokenFeatures:
    """Square roots of the probabilities of the token after the soft tokens.

    Distances are sqrt(2) times Hellinger's.

    Args:
        top: Number of likeliest tokens requested from the engine; all other tokens share a column. None
            requests all logits.
    """

    top: int | None = None

    def __post_init__(self) -> None:
        if self.top is not None:
            whole("top", self.top, least=1)

    def look(self, request: Request) -> Request:
        look = _reading(request)
        return replace(look, next_logits=True) if self.top is None else replace(look, top_logprobs=self.top)

    def rows(self, points: Tensor, soft: Tensor, looks: Sequence[Completion]) -> Tensor:
        if self.top is None:
            logits = torch.stack([cast(Tensor, look.next_logits) for look in looks]).double()
            return torch.softmax(logits, dim=-1).sqrt()
        likeliest = [look.top_logprobs[0] for look in looks]
        rows = [dict(zip(ids, map(math.exp, logprobs), strict=True)) for ids, logprobs in likeliest]
        return table([{None: max(0.0, 1.0 - sum(row.values())), **row} for row in rows]).sqrt()


@dataclass(frozen=True)
class HiddenStateFeatures:
    """The last layer's state, after its norm, at the last position of the prompt."""

    def look(self, request: Request) -> Request:
        return replace(_reading(request), hidden_state=True)

    def rows(self, points: Tensor, soft: Tensor, looks: Sequence[Completion]) -> Tensor:
        return torch.stack([cast(Tensor, look.hidden_state) for look in looks]).double()


@dataclass(frozen=True)
class LookaheadFeatures:
    """The first greedy tokens after the soft tokens, as a bag of (position, token).

    Args:
        tokens: Number of tokens.
    """

    tokens: int = 8

    def __post_init__(self) -> None:
        whole("tokens", self.tokens, least=1)

    def look(self, request: Request) -> Request | None:
        tokens = min(self.tokens, request.max_new_tokens)
        return replace(request, max_new_tokens=tokens, sampling=GREEDY, role=ROLE)

    def rows(self, points: Tensor, soft: Tensor, looks: Sequence[Completion]) -> Tensor:
        return table([dict.fromkeys(enumerate(look.token_ids), 1.0) for look in looks])


def table(rows: Sequence[Mapping[Any, float]]) -> Tensor:
    """(n, F) float64: a column for each key, 0 where a row lacks it."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return torch.tensor([[row.get(key, 0.0) for key in keys] for row in rows], dtype=torch.float64)


def _reading(request: Request) -> Request:
    """``request`` without generation."""
    return replace(request, max_new_tokens=0, min_new_tokens=0, stop=(), sampling=GREEDY, role=ROLE)
