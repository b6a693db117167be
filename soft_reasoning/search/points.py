"""Candidate points: (N, d) shared by all problems, (b, N, d) of each problem's own, or :class:`Around`."""

from __future__ import annotations

import torch
from torch import Tensor


class Around:
    """Points rho c + sqrt(1 - rho^2) z around each problem's ``centre`` c (b, 1, d), (b, N, d) in all.

    ``draws`` z (N, d) are shared by all problems, and so is ``share`` rho (N,). The points are not written
    out: what a kernel asks of them follows from products with z and c, a tenth of the work.
    """

    ndim = 3

    def __init__(self, centre: Tensor, draws: Tensor, share: Tensor):
        self.centre, self.draws, self.share = centre, draws, share
        self._rest = (1 - share.square()).sqrt()

    def __getitem__(self, problem: int) -> Tensor:
        """(N, d): the points of one problem."""
        return self.share.unsqueeze(-1) * self.centre[problem] + self._rest.unsqueeze(-1) * self.draws

    def written(self) -> Tensor:
        """(b, N, d)."""
        return torch.stack([self[i] for i in range(len(self.centre))])

    def at(self, index: Tensor) -> Tensor:
        """(b, q, d): the points of ``index`` (b, q)."""
        share, rest = self.share[index].unsqueeze(-1), self._rest[index].unsqueeze(-1)
        return share * self.centre + rest * self.draws[index]

    def __truediv__(self, lengthscale: Tensor) -> Around:
        """The points over a ``lengthscale`` (1,) or (d,) that all problems share."""
        return Around(self.centre / lengthscale, self.draws / lengthscale, self.share)

    def products(self, a: Tensor) -> Tensor:
        """(b, n, N): scalar products with ``a`` (b, n, d)."""
        near = (a * self.centre).sum(
            -1, keepdim=True
        )  # (b, n, 1); a product so thin rounds differently for each b
        return products(a, self.draws).mul_(self._rest).addcmul_(near, self.share)

    def half_norms(self) -> Tensor:
        """(b, N): half the squared lengths."""
        mixed = products(self.centre, self.draws).squeeze(-2)
        own = self._rest.square() * half_norms(self.draws) + self.share.square() * half_norms(self.centre)
        return own.addcmul_(self.share * self._rest, mixed)


def half_norms(points: Tensor | Around) -> Tensor:
    """(..., N): half the squared lengths of points (..., N, d)."""
    return points.half_norms() if isinstance(points, Around) else 0.5 * points.square().sum(-1)


def products(a: Tensor, points: Tensor | Around) -> Tensor:
    """(..., n, N): scalar products of ``a`` (..., n, d) with points (..., N, d).

    With points that all problems share, one problem at a time: one product for all of them would round
    differently for each b.
    """
    if isinstance(points, Around):
        return points.products(a)
    across = points.transpose(-1, -2)
    return torch.bmm(a, across.expand(len(a), -1, -1)) if a.ndim == 3 and points.ndim == 2 else a @ across


def at(points: Tensor | Around, index: Tensor) -> Tensor:
    """(b, q, d): the points of ``index`` (b, q)."""
    if isinstance(points, Around):
        return points.at(index)
    if points.ndim == 2:
        return points[index]
    return points.gather(1, index.unsqueeze(-1).expand(-1, -1, points.shape[-1]))
