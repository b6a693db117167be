"""Acquisition functions on posterior marginals, for all problems at once.

Each is called with :class:`~soft_reasoning.search.marginals.Marginals` and returns values (b, N), larger
is better. The closed forms are functions of means, deviations and the value to improve on, all tensors
that broadcast, in float64.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from botorch.acquisition.analytic import _log_ei_helper
from botorch.utils.probability.utils import log_ndtr, ndtr, phi
from torch import Tensor

from soft_reasoning.checks import real, whole
from soft_reasoning.search.marginals import Marginals


class Acquisition(Protocol):
    """Values (b, N) of the points of ``marginals``; ``redraw`` is true where every pick of a round gets
    values of its own (Thompson sampling)."""

    redraw: bool

    def __call__(self, marginals: Marginals) -> Tensor: ...


def expected_improvement(mean: Tensor, sd: Tensor, best: Tensor) -> Tensor:
    """E[max(f - best, 0)] for f ~ N(mean, sd^2).

    With z = (mean - best) / sd it is sd (phi(z) + z Phi(z)), the same as [D]^+ + sd phi(z) - |D| Phi(-|z|)
    for D = mean - best; the paper's -|D| Phi(z) is right for D <= 0 only (SPEC 14).
    """
    z = (mean - best) / sd
    return sd * (phi(z) + z * ndtr(z)).clamp_min(0.0)


def adaptive_factor(gamma: Tensor, delta: float) -> Tensor:
    """omega = sqrt(gamma + 1 + ln(1 / delta)), by which deviations grow under noise (paper, Adaptive EI)."""
    return (gamma + 1.0 + math.log(1.0 / delta)).sqrt()


class EI:
    """Expected improvement."""

    redraw = False

    def __call__(self, marginals: Marginals) -> Tensor:
        return expected_improvement(marginals.mean, marginals.sd, marginals.incumbent.unsqueeze(-1))


class AdaptiveEI:
    """Noise-adaptive expected improvement: EI with every deviation multiplied by omega_k.

    Smaller ``delta`` in (0, 1) explores more. gamma_k is the information gain of the points observed.
    """

    redraw = False

    def __init__(self, delta: float = 0.1):
        self.delta = real("acquisition.delta", delta, above=0.0, below=1.0)

    def __call__(self, marginals: Marginals) -> Tensor:
        omega = adaptive_factor(marginals.gamma, self.delta).unsqueeze(-1)
        return expected_improvement(marginals.mean, omega * marginals.sd, marginals.incumbent.unsqueeze(-1))


class LogEI:
    """The logarithm of expected improvement, finite where EI itself underflows (BoTorch's formula)."""

    redraw = False

    def __call__(self, marginals: Marginals) -> Tensor:
        sd = marginals.sd
        z = (marginals.mean - marginals.incumbent.unsqueeze(-1)) / sd
        return _log_ei_helper(z) + sd.log()


class PI:
    """The logarithm of the probability of improvement: the same order of points, without underflow."""

    redraw = False

    def __call__(self, marginals: Marginals) -> Tensor:
        return log_ndtr((marginals.mean - marginals.incumbent.unsqueeze(-1)) / marginals.sd)


class UCB:
    """mean + sqrt(beta) sd."""

    redraw = False

    def __init__(self, beta: float = 2.0):
        self.beta = real("acquisition.beta", beta, least=0.0)

    def __call__(self, marginals: Marginals) -> Tensor:
        return marginals.mean + math.sqrt(self.beta) * marginals.sd


class Thompson:
    """A draw of the posterior function at the points, a new one for every pick.

    Drawn by Matheron's rule from ``features`` random Fourier features of the prior: frequencies are
    shared by all problems, weights and noise come from each problem's own stream.
    """

    redraw = True
    AHEAD = 5
    """Functions drawn at a time: the features, which cost most, are then computed once for them all."""

    def __init__(self, features: int = 512):
        self.features = whole("acquisition.features", features, least=1)

    def __call__(self, marginals: Marginals) -> Tensor:
        if not marginals.draws:
            marginals.draws += self._draw(marginals)
        return marginals.draws.pop(0)

    def _draw(self, marginals: Marginals) -> list[Tensor]:
        """``AHEAD`` functions' values (b, N)."""
        model = marginals.model
        d, n = model.U.shape[-1], model.y.shape[-1]
        shared = marginals.shared
        W = torch.randn(d, self.features, dtype=torch.float64, generator=shared)
        phase = torch.rand(self.features, dtype=torch.float64, generator=shared) * (2 * math.pi)
        amplitude = math.sqrt(2 * model.scale / self.features)
        draws = []
        for i, stream in enumerate(marginals.streams):
            weights = torch.randn(self.features, self.AHEAD, dtype=torch.float64, generator=stream)
            noise = torch.randn(n, self.AHEAD, dtype=torch.float64, generator=stream)
            one = model.select(i)
            X = marginals.X if marginals.X.ndim == 2 else marginals.X[i]
            prior = [
                (P / one.lengthscale[0] @ W).add_(phase).cos_() @ (amplitude * weights) for P in (one.U[0], X)
            ]
            residual = one.y[0].unsqueeze(-1) - one.mean[0] - prior[0] - math.sqrt(model.noise) * noise
            white = torch.linalg.solve_triangular(one.cholesky[0], residual, upper=False)  # (n, AHEAD)
            update = white.transpose(0, 1) @ one.whiten(one.scaled(X))[0]
            draws.append(one.mean[0] + prior[1].transpose(0, 1) + update)
        return list(torch.stack(draws, dim=1))
