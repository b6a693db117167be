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

from soft_reasoning.checks import real, whole
from soft_reasoning.search.model import information_gain, observations

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
        self.delta: float = real("acquisition.delta", delta, above=0.0, below=1.0)
        with torch.no_grad():
            omega = adaptive_factor(information_gain(model), self.delta)
        self.register_buffer("omega", omega.unsqueeze(-1))

    @one_point
    def forward(self, X: Tensor) -> Tensor:
        """Values (batch,) at ``X`` (batch x 1 x d); larger is better."""
        gain, sd = self._gain_and_sd(X)
        return expected_improvement(gain, self.omega * sd, torch.zeros_like(gain)).squeeze(-1)


class ActiveSearch(_Improvement):
    """Successes expected in the rest of a problem's budget, once a success is likely; before that, coverage.

    The value (after Jiang et al., 2017, Efficient Nonmyopic Active Search) is

        mean - best_f + m E[max(mean' - best_f, 0)],

    the point's own chance of success, and what its outcome adds to each of the m evaluations after this round
    if all of them go to the better of the point and the incumbent. mean' is the point's posterior mean after
    its outcome, taken as normal with deviation sd^2 / sqrt(sd^2 + lambda). So marginals suffice, where
    Jiang et al. compare every point with all others. In the last round m = 0: the chance of success alone.

    Where ``best_f`` is below ``exploit_above``, the value is the deviation, which favours points far from all
    others. The chance of at least one success grows only in the event that all earlier points failed. In that
    event their labels tell nothing more, so distance is all that is left.

    Args:
        model: An exact GP with a Gaussian likelihood over chances of success (``BinarySurrogate``).
        best_f: The incumbent's posterior mean, a number or (b, 1) for a model of b problems.
        rounds: Rounds after the first, in all; 0 makes every round the last.
        candidates: Evaluations of a round. The number of the model's points over it is the round in hand.
        exploit_above: Chance of success of the incumbent below which points are chosen for coverage.
        posterior_transform: As for BoTorch's analytic acquisition functions.

    Raises:
        UserError: For a value out of its range.
    """

    noise: Tensor

    def __init__(
        self,
        model: Model,
        best_f: float | Tensor,
        rounds: int = 4,
        candidates: int = 5,
        exploit_above: float = 0.2,
        posterior_transform: Any = None,
    ):
        super().__init__(model, best_f, posterior_transform)
        rounds = whole("acquisition.rounds", rounds, least=0)
        candidates = whole("acquisition.candidates", candidates, least=1)
        self.exploit_above: float = real("acquisition.exploit_above", exploit_above)
        observed, noise = observations(model)
        self.later: int = candidates * max(0, rounds - observed.shape[-2] // candidates)
        self.register_buffer("noise", noise.detach().mean(-1, keepdim=True))

    @one_point
    def forward(self, X: Tensor) -> Tensor:
        """Values (batch,) at ``X`` (batch x 1 x d)."""
        gain, sd = self._gain_and_sd(X)
        step = sd.square() / (sd.square() + self.noise).sqrt()
        successes = gain + self.later * expected_improvement(gain, step, torch.zeros_like(gain))
        return torch.where(self.best_f < self.exploit_above, sd, successes).squeeze(-1)


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
