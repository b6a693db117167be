"""Acquisition functions that BoTorch does not have; EI, LogEI, PI and UCB are BoTorch's classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from botorch.acquisition import ExpectedImprovement
from botorch.models.model import Model
from botorch.utils.probability.utils import ndtr, phi
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from soft_reasoning.checks import real
from soft_reasoning.search.surrogate import information_gain

Forward = TypeVar("Forward", bound=Callable[..., Tensor])


def one_point(forward: Forward) -> Forward:
    """BoTorch's ``t_batch_mode_transform(expected_q=1)`` with the type of the method that it decorates."""
    return cast(Forward, t_batch_mode_transform(expected_q=1)(cast(Any, forward)))


def printed_improvement(gain: Tensor, sd: Tensor) -> Tensor:
    """[D]^+ + sd phi(D / sd) - |D| Phi(D / sd), the paper's printed expected improvement for a gain D.

    The last factor should be Phi(-|D| / sd), so the formula is correct for D <= 0 and too small for D > 0.
    """
    z = gain / sd
    return gain.clamp_min(0.0) + sd * phi(z) - gain.abs() * ndtr(z)


def adaptive_factor(gamma: Tensor, delta: float) -> Tensor:
    """Return omega = sqrt(gamma + 1 + ln(1 / delta)), which scales deviations (paper, Adaptive EI)."""
    return (gamma + 1.0 + math.log(1.0 / delta)).sqrt()


class NoiseAdaptiveExpectedImprovement(ExpectedImprovement):
    """Expected improvement with every deviation multiplied by omega_k (paper, Adaptive EI).

    omega_k = sqrt(gamma_k + 1 + ln(1 / delta)) for the information gain gamma_k of the points observed. It
    grows with each new point, more slowly with noisier rewards, so the search keeps exploring.

    Args:
        model: An exact GP with a Gaussian likelihood and one output, of GPyTorch or BoTorch.
        best_f: The value to improve on, a number or (b, 1) for a model of b problems.
        delta: Probability that the confidence bounds fail, in (0, 1). Smaller values explore more.
        posterior_transform: As for BoTorch's analytic acquisition functions.
        maximize: Whether larger values are better.

    Raises:
        UserError: If ``delta`` is not in (0, 1).

    Example:
        >>> import torch
        >>> from botorch.models import SingleTaskGP
        >>> from botorch.optim import optimize_acqf
        >>> from soft_reasoning.search import NoiseAdaptiveExpectedImprovement
        >>> X = torch.rand(10, 2, dtype=torch.float64)
        >>> y = X.sum(-1, keepdim=True)
        >>> model = SingleTaskGP(X, y, train_Yvar=torch.full_like(y, 0.1))
        >>> acquisition = NoiseAdaptiveExpectedImprovement(model, best_f=y.max(), delta=0.1)
        >>> bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        >>> point, value = optimize_acqf(acquisition, bounds, q=1, num_restarts=2, raw_samples=16)
        >>> point.shape
        torch.Size([1, 2])
    """

    best_f: Tensor
    omega: Tensor

    def __init__(
        self,
        model: Model,
        best_f: float | Tensor,
        delta: float = 0.1,
        posterior_transform: Any = None,
        maximize: bool = True,
    ):
        super().__init__(model, best_f, posterior_transform, maximize)
        self.delta: float = real("delta", delta, above=0.0, below=1.0)
        with torch.no_grad():
            omega = adaptive_factor(information_gain(model), self.delta)
        self.register_buffer("omega", omega.unsqueeze(-1))

    def _mean_and_sigma(
        self, X: Tensor, compute_sigma: bool = True, min_var: float = 1e-12
    ) -> tuple[Tensor, Tensor | None]:
        mean, sigma = super()._mean_and_sigma(X, compute_sigma, min_var)
        return mean, None if sigma is None else self.omega * sigma


class PrintedAdaptiveEI(NoiseAdaptiveExpectedImprovement):
    """The paper's printed formula with deviations multiplied by omega. Its arguments are the parent's."""

    @one_point
    def forward(self, X: Tensor) -> Tensor:
        mean, sd = self._mean_and_sigma(X)
        gain = mean - self.best_f if self.maximize else self.best_f - mean
        return printed_improvement(gain, cast(Tensor, sd)).squeeze(-1)


class ReleasedEI(ExpectedImprovement):
    """The public code's rule: the printed formula with the opposite gain and the variance as deviation.

    It favours points predicted worse than the incumbent.
    """

    best_f: Tensor

    @one_point
    def forward(self, X: Tensor) -> Tensor:
        """Values (batch,) at ``X`` (batch x 1 x d)."""
        mean, sd = self._mean_and_sigma(X)
        loss = self.best_f - mean if self.maximize else mean - self.best_f
        return printed_improvement(loss, cast(Tensor, sd).square()).squeeze(-1)
