"""Acquisition functions that BoTorch does not have; EI, LogEI, PI and UCB are BoTorch's own classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from botorch.acquisition import AnalyticAcquisitionFunction
from botorch.models.model import Model
from botorch.utils.probability.utils import ndtr, phi
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from soft_reasoning.checks import real
from soft_reasoning.search.model import information_gain

Forward = TypeVar("Forward", bound=Callable[..., Tensor])


def one_point(forward: Forward) -> Forward:
    """BoTorch's ``t_batch_mode_transform(expected_q=1)`` with the type of the method that it decorates."""
    return cast(Forward, t_batch_mode_transform(expected_q=1)(cast(Any, forward)))


def expected_improvement(mean: Tensor, sd: Tensor, best: Tensor) -> Tensor:
    """E[max(f - best, 0)] for f ~ N(mean, sd^2); the arguments broadcast.

    With D = mean - best and z = D / sd it is sd (phi(z) + z Phi(z)) = [D]^+ + sd phi(z) - |D| Phi(-|z|).
    The paper prints -|D| Phi(z), which is right for D <= 0 only.
    """
    z = (mean - best) / sd
    return sd * (phi(z) + z * ndtr(z)).clamp_min(0.0)


def printed_improvement(gain: Tensor, sd: Tensor) -> Tensor:
    """[D]^+ + sd phi(D / sd) - |D| Phi(D / sd): expected improvement where D <= 0, too small above."""
    z = gain / sd
    return gain.clamp_min(0.0) + sd * phi(z) - gain.abs() * ndtr(z)


def adaptive_factor(gamma: Tensor, delta: float) -> Tensor:
    """Return omega = sqrt(gamma + 1 + ln(1 / delta)), which scales deviations (paper, Adaptive EI)."""
    return (gamma + 1.0 + math.log(1.0 / delta)).sqrt()


class _Improvement(AnalyticAcquisitionFunction):
    """An acquisition function of the posterior marginals and the value to improve on."""

    best_f: Tensor

    def __init__(
        self, model: Model, best_f: float | Tensor, posterior_transform: Any = None, maximize: bool = True
    ):
        super().__init__(model=model, posterior_transform=posterior_transform)
        self.register_buffer("best_f", torch.as_tensor(best_f))
        self.maximize = maximize

    def _gain_and_sd(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean minus ``best_f``, and the deviation, (batch, 1) each."""
        mean, sd = self._mean_and_sigma(X)
        assert sd is not None  # it is, unless asked not to be computed
        return (mean - self.best_f if self.maximize else self.best_f - mean), sd


class NoiseAdaptiveExpectedImprovement(_Improvement):
    """Expected improvement with every deviation multiplied by omega_k (paper, Adaptive EI).

    omega_k = sqrt(gamma_k + 1 + ln(1 / delta)) for the information gain gamma_k of the points observed. Noise
    in the rewards raises it less, and each new point raises it more, so the search keeps exploring.

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

    @one_point
    def forward(self, X: Tensor) -> Tensor:
        """Values (batch,) at ``X`` (batch x 1 x d); larger is better."""
        gain, sd = self._gain_and_sd(X)
        return expected_improvement(gain, self.omega * sd, torch.zeros_like(gain)).squeeze(-1)


class PrintedAdaptiveEI(NoiseAdaptiveExpectedImprovement):
    """The paper's formula as printed, deviations multiplied by omega. Its arguments are the parent's."""

    @one_point
    def forward(self, X: Tensor) -> Tensor:
        gain, sd = self._gain_and_sd(X)
        return printed_improvement(gain, self.omega * sd).squeeze(-1)


class ReleasedEI(_Improvement):
    """The public code's rule: the printed formula with the opposite gain and the variance as deviation.

    It favours points predicted worse than the incumbent.
    """

    @one_point
    def forward(self, X: Tensor) -> Tensor:
        """Values (batch,) at ``X`` (batch x 1 x d)."""
        gain, sd = self._gain_and_sd(X)
        return printed_improvement(-gain, sd.square()).squeeze(-1)
