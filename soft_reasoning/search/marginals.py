"""The posterior at a fixed set of points, cheap to condition on one of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from soft_reasoning.search.model import VARIANCE_FLOOR, ExactRBF
from soft_reasoning.search.points import Around, at, half_norms


class Marginals:
    """What an acquisition function sees: means and deviations (b, N) at the candidate points.

    ``X`` (N, d) shared by all problems, (b, N, d) or ``Around``; ``incumbent`` (b,) the value to improve on;
    ``gamma`` (b,) the information gain of the observations. For acquisitions that draw: ``streams``, one
    generator a problem, and ``shared``, a stream that is the same for every problem; ``draws`` are those
    made and not used yet.
    """

    def __init__(
        self,
        model: ExactRBF,
        X: Tensor | Around,
        incumbent: Tensor,
        streams: Sequence[torch.Generator] = (),
        shared: torch.Generator | None = None,
    ):
        self.model, self.X, self.incumbent = model, X, incumbent
        self.streams, self.shared = streams, shared
        self.draws: list[Tensor] = []
        self.gamma = model.information_gain
        self._scaled = model.scaled(X)
        self._norms = half_norms(self._scaled)
        self._V = model.whiten(self._scaled, self._norms)  # (b, n, N)
        self.mean = model.mean.unsqueeze(-1) + (model.whitened.transpose(-1, -2) @ self._V).squeeze(-2)
        self._variance = model.scale - self._V.square().sum(-2)

    @property
    def sd(self) -> Tensor:
        """(b, N): standard deviations of the noise-free function."""
        return self._variance.clamp_min(self.model.scale * VARIANCE_FLOOR).sqrt()

    def at(self, index: Tensor) -> Tensor:
        """(b, q, d): the points of ``index`` (b, q)."""
        return at(self.X, index)

    def believe(self, index: Tensor) -> None:
        """Condition on point ``index`` (b,) having come out at its own posterior mean (Kriging believer).

        Means then stay as they are and only the variances shrink: one more row of the whitened
        cross-covariance, the same numbers as refitting with the point added. The incumbent rises to the
        believed value where that is higher.
        """
        rows = torch.arange(len(index))
        point = at(self._scaled, index.unsqueeze(-1))  # (b, 1, d)
        covariance = self.model.kernel(point, self._scaled, self._norms).squeeze(-2)  # (b, N)
        column = self._V[rows, :, index]  # (b, n)
        covariance = covariance - (column.unsqueeze(-2) @ self._V).squeeze(-2)
        noisy = self._variance[rows, index].clamp_min(0.0) + self.model.noise
        row = covariance / noisy.sqrt().unsqueeze(-1)
        self._V = torch.cat([self._V, row.unsqueeze(-2)], dim=-2)
        self._variance = self._variance - row.square()
        believed = self.mean[rows, index]
        self.model = self.model.believe(self.at(index.unsqueeze(-1)), believed.unsqueeze(-1))
        self.incumbent = torch.maximum(self.incumbent, believed)
        self.draws.clear()
