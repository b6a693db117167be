"""Surrogates: how a Gaussian process is fitted to a problem's rewards.

A surrogate is what is configured; ``fit`` returns an :class:`~soft_reasoning.search.model.ExactRBF` for a
batch of problems. With u ~ N(0, I_d) squared distances are about 2 d, so a lengthscale of 1 leaves no
correlation at d = 50 (2e-22) while sqrt(d) leaves exp(-1): it is what lets the search learn (SPEC 13, 16).
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from soft_reasoning.checks import choice, real, switch, whole
from soft_reasoning.search.model import ExactRBF

MEANS = ("centred", "zero", "constant")
SCALINGS = ("sqrt_d", "absolute")


class Surrogate(Protocol):
    """Fits observations ``U`` (b, n, d) and rewards ``y`` (b, n), both float64."""

    def fit(self, U: Tensor, y: Tensor) -> ExactRBF: ...


class FixedRBF:
    """RBF kernel with nothing to fit: lengthscale, noise variance and prior variance are given.

    ``lengthscale`` is in units of sqrt(d) or absolute. The prior mean is the average reward
    (``centred``), 0, or the generalised-least-squares ``constant``; a zero mean under rewards that are
    all positive draws the search back to where it has been (SPEC 14).
    """

    def __init__(
        self,
        lengthscale: float = 1.0,
        scaling: str = "sqrt_d",
        noise: float = 0.05,
        mean: str = "centred",
        variance: float = 1.0,
    ):
        self.lengthscale = real("surrogate.lengthscale", lengthscale, above=0.0)
        self.scaling = choice("surrogate.scaling", scaling, SCALINGS)
        self.noise = real("surrogate.noise", noise, above=0.0)
        self.mean = choice("surrogate.mean", mean, MEANS)
        self.variance = real("surrogate.variance", variance, above=0.0)

    def fit(self, U: Tensor, y: Tensor) -> ExactRBF:
        b, _, d = U.shape
        length = self.lengthscale * (math.sqrt(d) if self.scaling == "sqrt_d" else 1.0)
        lengthscale = torch.tensor([[length]], dtype=torch.float64).expand(b, 1)
        return fitted(U, y, lengthscale, self.mean, self.variance, self.noise)


def fitted(U: Tensor, y: Tensor, lengthscale: Tensor, mean: str, variance: float, noise: float) -> ExactRBF:
    """The model with the prior mean that ``mean`` names."""
    average = y.mean(-1) if mean == "centred" else torch.zeros_like(y[:, 0])
    model = ExactRBF(U, y, lengthscale=lengthscale, mean=average, scale=variance, noise=noise)
    if mean != "constant":
        return model
    ones = torch.linalg.solve_triangular(model.cholesky, torch.ones_like(y).unsqueeze(-1), upper=False)
    constant = (ones * model.whitened).sum((-2, -1)) / ones.square().sum((-2, -1))  # 1'K^-1 y / 1'K^-1 1
    return ExactRBF(U, y, lengthscale=lengthscale, mean=constant, scale=variance, noise=noise)


class MAPRBF:
    """RBF kernel whose lengthscale maximises the marginal likelihood times a log-normal prior.

    The prior is Hvarfner et al.'s, LogNormal(sqrt 2 + ln(d) / 2, sqrt 3), stated there for inputs in
    [0, 1]^d; ours are N(0, I), sqrt(12) times as wide, so its location moves by ln sqrt(12). ``noise`` and
    ``variance`` are given, in the units of the rewards. ``ard`` fits one lengthscale a dimension.
    """

    def __init__(self, ard: bool = False, noise: float = 0.05, mean: str = "centred", variance: float = 1.0):
        self.ard = switch("surrogate.ard", ard)
        self.noise = real("surrogate.noise", noise, above=0.0)
        self.mean = choice("surrogate.mean", mean, MEANS)
        self.variance = real("surrogate.variance", variance, above=0.0)

    def fit(self, U: Tensor, y: Tensor) -> ExactRBF:
        lengthscale = self._refine(U, y, self._search(U, y))
        if self.ard:
            lengthscale = self._gradient(U, y, lengthscale)
        return fitted(U, y, lengthscale.exp(), self.mean, self.variance, self.noise)

    def log_posterior(self, U: Tensor, y: Tensor, log_lengthscale: Tensor) -> Tensor:
        """(b,): log marginal likelihood plus log prior density at ``log_lengthscale`` (b, 1) or (b, d)."""
        model = fitted(U, y, log_lengthscale.exp(), self.mean, self.variance, self.noise)
        fit = -0.5 * model.whitened.square().sum((-2, -1))
        volume = model.cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        centre = math.sqrt(2) + 0.5 * math.log(U.shape[-1]) + 0.5 * math.log(12)
        prior = -((log_lengthscale - centre) ** 2) / 6 - log_lengthscale  # LogNormal(centre, sqrt 3)
        return fit - volume + prior.sum(-1)

    def _search(self, U: Tensor, y: Tensor) -> Tensor:
        """(b, 1): the best of 33 shared lengthscales, 0.1 to 10 sqrt(d); a grid, so that a problem's fit
        does not depend on the others in its batch."""
        half = 0.5 * math.log(U.shape[-1])
        grid = torch.linspace(half - math.log(10), half + math.log(10), 33, dtype=torch.float64)
        return self._best(U, y, grid.expand(len(U), -1))

    def _refine(self, U: Tensor, y: Tensor, start: Tensor) -> Tensor:
        step = 2 * math.log(10) / 32
        for width in (step, step / 8, step / 64):
            offsets = torch.linspace(-width, width, 17, dtype=torch.float64)
            start = self._best(U, y, start + offsets)
        return start

    def _best(self, U: Tensor, y: Tensor, grid: Tensor) -> Tensor:
        values = torch.stack([self.log_posterior(U, y, g.unsqueeze(-1)) for g in grid.unbind(-1)], dim=-1)
        return grid.gather(-1, values.argmax(-1, keepdim=True))

    def _gradient(self, U: Tensor, y: Tensor, start: Tensor, steps: int = 60) -> Tensor:
        """(b, d): Adam on every dimension's log lengthscale; elementwise, so problems stay independent."""
        log = start.expand(-1, U.shape[-1]).clone().requires_grad_()
        adam = torch.optim.Adam([log], lr=0.05)
        for _ in range(whole("steps", steps, least=1)):
            adam.zero_grad()
            with torch.enable_grad():
                (-self.log_posterior(U, y, log).sum()).backward()
            adam.step()
        return log.detach()
