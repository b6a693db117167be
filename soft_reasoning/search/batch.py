"""How the k points of a round are chosen among the candidate points."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.sampling import SobolQMCNormalSampler
from torch import Tensor

from soft_reasoning.checks import whole
from soft_reasoning.search.acquisition import LogEI
from soft_reasoning.search.marginals import Marginals
from soft_reasoning.search.points import Around, half_norms, products

TIE = 1e-10
"""Values closer than this, relative to the largest, count as equal; the lowest index then wins. So
rounding, which differs between batch sizes, does not decide."""


class Batch(Protocol):
    def choose(self, acquisition: Any, marginals: Marginals, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Indices (b, k) of distinct points and their acquisition values (b, k), in order of choice; and the
        values (b, N) of all points before the first choice."""
        ...


def first_best(values: Tensor) -> Tensor:
    """(b,): the lowest index whose value is within :data:`TIE` of the row's largest."""
    top = values.amax(-1, keepdim=True)
    return (values >= top - TIE * top.abs()).to(torch.uint8).argmax(-1)


def _pick(values: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
    """One point of each row, marked in ``taken`` (b, N); its index (b,) and value (b,)."""
    index = first_best(values.masked_fill(taken, -torch.inf))
    taken.scatter_(-1, index.unsqueeze(-1), True)
    return index, values.gather(-1, index.unsqueeze(-1)).squeeze(-1)


class TopK:
    """The k points of the largest acquisition values."""

    def choose(self, acquisition: Any, marginals: Marginals, k: int) -> tuple[Tensor, Tensor, Tensor]:
        first = values = acquisition(marginals)
        taken = torch.zeros_like(values, dtype=torch.bool)
        picks = [_pick(values, taken)]
        for _ in range(k - 1):
            if acquisition.redraw:
                values = acquisition(marginals)
            picks.append(_pick(values, taken))
        index, value = zip(*picks, strict=True)
        return torch.stack(index, dim=-1), torch.stack(value, dim=-1), first


class Fantasy:
    """One point after another, each believed to come out at its posterior mean (Kriging believer)."""

    def choose(self, acquisition: Any, marginals: Marginals, k: int) -> tuple[Tensor, Tensor, Tensor]:
        first = acquisition(marginals)
        taken = torch.zeros_like(first, dtype=torch.bool)
        picks = [_pick(first, taken)]
        for _ in range(k - 1):
            marginals.believe(picks[-1][0])
            picks.append(_pick(acquisition(marginals), taken))
        index, value = zip(*picks, strict=True)
        return torch.stack(index, dim=-1), torch.stack(value, dim=-1), first


class FarthestFirst:
    """One point after another, each the farthest from its nearest among the points seen and chosen.

    It looks where nothing is known, and takes the place of the acquisition function: values are distances.
    """

    def choose(self, acquisition: Any, marginals: Marginals, k: int) -> tuple[Tensor, Tensor, Tensor]:
        X, norms = marginals.X, half_norms(marginals.X)
        first = nearest = self._halved(marginals.model.U, X, norms).amin(-2)
        index, value = [], []
        for i in range(k):
            if i:
                nearest = torch.minimum(nearest, self._halved(marginals.at(index[-1]), X, norms).amin(-2))
            index.append(first_best(nearest).unsqueeze(-1))
            value.append((2 * nearest.gather(-1, index[-1])).sqrt())
        return torch.cat(index, dim=-1), torch.cat(value, dim=-1), (2 * first).clamp_min(0.0).sqrt()

    def _halved(self, a: Tensor, X: Tensor | Around, norms: Tensor) -> Tensor:
        """(b, n, N): half the squared distances of ``a`` (b, n, d) and the points ``X``."""
        return half_norms(a).unsqueeze(-1) + norms.unsqueeze(-2) - products(a, X)


class QLogEI:
    """BoTorch's ``qLogExpectedImprovement``, maximised greedily over the ``pool`` points of largest LogEI.

    It takes the place of the configured acquisition function. One problem at a time; slow.
    """

    def __init__(self, pool: int = 128, samples: int = 128):
        self.pool = whole("batch.pool", pool, least=1)
        self.samples = whole("batch.samples", samples, least=1)

    def choose(self, acquisition: Any, marginals: Marginals, k: int) -> tuple[Tensor, Tensor, Tensor]:
        values = LogEI()(marginals)
        pool = values.topk(min(max(self.pool, k), values.shape[-1])).indices.sort(-1).values  # (b, P)
        picks = [self._one(marginals, i, row, k) for i, row in enumerate(pool)]
        index, value = zip(*picks, strict=True)
        return torch.stack(index), torch.stack(value), values

    def _one(self, marginals: Marginals, problem: int, pool: Tensor, k: int) -> tuple[Tensor, Tensor]:
        model, best = marginals.model.select(problem), marginals.incumbent[problem]
        points = (marginals.X if marginals.X.ndim == 2 else marginals.X[problem])[pool]
        sampler = SobolQMCNormalSampler(torch.Size([self.samples]), seed=0)
        taken = torch.zeros(1, len(pool), dtype=torch.bool)
        index, value, pending = [], [], None
        for _ in range(k):
            function = qLogExpectedImprovement(model, best, sampler=sampler, X_pending=pending)
            with torch.no_grad():
                values = function(points[:, None, None, :]).reshape(1, -1)
            i, v = _pick(values, taken)
            index.append(pool[i])
            value.append(v)
            pending = points[i] if pending is None else torch.cat([pending, points[i]])
        return torch.cat(index), torch.cat(value)
