"""Features: the surrogate's inputs for a point.

The reward is piecewise constant over u: many points give the same text. So the surrogate's kernel may use
the model's reaction to a point in place of u. The engine looks at a question's :class:`Pool` of points in one
batch. Features are scaled to the distances of points of N(0, I), so that a lengthscale has the same meaning.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
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
        most = min(self.tokens, request.max_new_tokens)
        return replace(request, max_new_tokens=most, sampling=GREEDY, role=ROLE)

    def rows(self, points: Tensor, soft: Tensor, looks: Sequence[Completion]) -> Tensor:
        return table([dict.fromkeys(enumerate(look.token_ids), 1.0) for look in looks])


def table(rows: Sequence[Mapping[Any, float]]) -> Tensor:
    """(n, F) float64: a column for each key, 0 where a row lacks it."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return torch.tensor([[row.get(key, 0.0) for key in keys] for row in rows], dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Pool:
    """The candidate points of a question, and the knowledge of them before any is completed.

    Attributes:
        points: (N, d) float64.
        features: (N, N) float64, with the distances of the features, scaled by :func:`scaled`.
        behaviour: (N,) equal numbers for points that are known to behave alike.
        looks: The completion of each look; empty without looks.
    """

    points: Tensor
    features: Tensor
    behaviour: Tensor
    looks: tuple[Completion, ...] = ()

    @classmethod
    def of(
        cls,
        points: Tensor,
        rows: Tensor,
        behaviours: Sequence[Hashable],
        looks: Sequence[Completion] = (),
    ) -> Pool:
        """Return the pool of ``points`` (N, d) with feature ``rows`` (N, F) and ``behaviours`` (N)."""
        numbers: dict[Hashable, int] = {}
        alike = torch.tensor([numbers.setdefault(behaviour, len(numbers)) for behaviour in behaviours])
        return cls(points, scaled(rows), alike, tuple(looks))

    def find(self, points: Tensor) -> Tensor:
        """(n,): the indices of ``points`` (n, d), which are points of the pool."""
        return (points.unsqueeze(1) == self.points).all(-1).to(torch.uint8).argmax(-1)

    def choices(self, seen: Tensor) -> Tensor:
        """(N,): the points' behaviours, and -1 for behaviours of the points ``seen`` (n, d)."""
        excluded = self.behaviour[self.find(seen)]
        return self.behaviour.masked_fill(torch.isin(self.behaviour, excluded), -1)

    def unseen(self, seen: Tensor) -> int:
        """Return the number of behaviours that the points ``seen`` (n, d) do not have."""
        choices = self.choices(seen)
        return len(choices[choices >= 0].unique())

    def summary(self) -> dict[str, int]:
        """Return the pool's entry in a trace."""
        return {"points": len(self.points), "behaviours": int(self.behaviour.max()) + 1}


def scaled(rows: Tensor) -> Tensor:
    """Return (n, n) rows whose distances are those of ``rows`` (n, F) times a factor.

    The factor makes the median distance of different rows sqrt(2 n), as for points of N(0, I) in n
    dimensions. So a lengthscale in units of sqrt(d) has the same meaning for features as for such points.
    """
    n = len(rows)
    rows = rows.double() - rows.double().mean(0)
    if rows.shape[1] > n:
        rows = torch.linalg.qr(rows.T, mode="r").R.T  # a rotation
    rows = torch.nn.functional.pad(rows, (0, n - rows.shape[1]))
    distances = torch.pdist(rows)
    distances = distances[distances > 1e-6 * rows.norm(dim=-1).max()]
    if not len(distances):  # all points have the same features
        return torch.zeros_like(rows)
    return rows * (math.sqrt(2 * n) / float(distances.median()))


def _reading(request: Request) -> Request:
    """``request`` without generation."""
    return replace(request, max_new_tokens=0, min_new_tokens=0, stop=(), sampling=GREEDY, role=ROLE)
