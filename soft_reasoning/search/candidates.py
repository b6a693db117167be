"""Candidate points: the discrete set over which an acquisition function is maximised.

``draw`` draws a set of random numbers for each round, which all problems share. ``place`` turns it into
points, (N, d) if all problems share them and (b, N, d) if they depend on a problem's data.
"""

# Parts of torch have no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math

import torch
from torch import Tensor

from soft_reasoning.checks import real, whole
from soft_reasoning.search.model import CheapMarginalsGP


class NormalCandidates:
    """``count`` points u ~ N(0, I), as in the first round (paper, "Maximising Expected Improvement")."""

    def __init__(self, count: int = 5000):
        self.count: int = whole("count", count, least=1)

    def draw(self, dim: int, generator: torch.Generator) -> Tensor:
        """Random numbers (N, dim) float64 of a round."""
        return torch.randn(self.count, dim, dtype=torch.float64, generator=generator)

    def place(self, draws: Tensor, gp: CheapMarginalsGP, best: Tensor, lengths: Tensor) -> Tensor:
        """Points, (N, d), (b, N, d), or (b, k, M, d) with M separate points for each of k picks.

        Args:
            draws: Random numbers from :meth:`draw`.
            gp: The model of b problems.
            best: (b,) index of the incumbent among the points observed.
            lengths: (b, k) lengths of points of N(0, I), one for each pick of a round.
        """
        return draws


class UniformCandidates(NormalCandidates):
    """u ~ U[0, 1]^d as in the public code: only one orthant."""

    def draw(self, dim: int, generator: torch.Generator) -> Tensor:
        return torch.rand(self.count, dim, dtype=torch.float64, generator=generator)


class LocalCandidates(NormalCandidates):
    """Points between new random points and the incumbent, with the lengths of N(0, I).

    A point's direction is that of rho c + sqrt(1 - rho^2) xi, where c is the incumbent scaled to length
    sqrt(d), xi ~ N(0, I), and rho runs evenly over [0, ``reach``]. Each of a round's k picks has separate
    candidate points, all of the same length, which is that of a random point of N(0, I). So the acquisition
    function chooses directions and cannot drift to longer vectors, which would be a larger sigma. The last
    ``fresh`` picks choose only among new points (rho = 0), which keeps coverage if no point was right yet.
    An incumbent of exactly 0 has no direction, so all points are new.
    """

    def __init__(self, count: int = 2000, reach: float = 0.95, fresh: int = 1):
        super().__init__(count)
        self.fresh: int = whole("fresh", fresh, least=0)
        self.reach: float = real("reach", reach, least=0.0, below=1.0)

    def place(self, draws: Tensor, gp: CheapMarginalsGP, best: Tensor, lengths: Tensor) -> Tensor:
        U, d = gp.train_inputs[0], draws.shape[-1]
        centre: Tensor = U[torch.arange(len(best)), best, None, None]  # (b, 1, 1, d)
        length = centre.norm(dim=-1, keepdim=True).clamp_min(1e-300)
        centre = centre * (math.sqrt(d) / length)
        k = lengths.shape[1]
        M = len(draws) // k
        local = torch.arange(k) < k - self.fresh
        rho = local[:, None, None] * torch.linspace(0.0, self.reach, M, dtype=torch.float64).unsqueeze(-1)
        X = rho * centre + (1 - rho.square()).sqrt() * draws[: k * M].reshape(k, M, d)  # (b, k, M, d)
        return X * (lengths[:, :, None, None] / X.norm(dim=-1, keepdim=True))
