"""A question's pool of points, from which the search chooses.

Features are scaled to the distances of points of N(0, I), so that a lengthscale keeps its meaning. Of points
that behave alike only one is tried.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from soft_reasoning.types import Completion


@dataclass(frozen=True, eq=False)
class PointPool:
    """The candidate points of a question, and what is known of them before any is completed.

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
    ) -> PointPool:
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
