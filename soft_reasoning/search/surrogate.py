"""The surrogate: GPyTorch's exact GP with fixed noise, batched over problems, and its parameters."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import torch
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.optim.fit import fit_gpytorch_mll_scipy
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.transformed import TransformedPosterior
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.means import Mean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from linear_operator.operators import DiagLinearOperator, LinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.errors import NotPSDError
from torch import Tensor
from torch.nn import Parameter

from soft_reasoning.checks import OptionError, choice, real, switch
from soft_reasoning.types import UserError

VARIANCE_FLOOR = 1e-12
"""Relative to the prior variance. It keeps deviations positive at observed points when noise is tiny."""
SCALINGS = ("sqrt_d", "absolute")
FITS = ("none", "map")


class SumMean(Mean):
    """The average reward of each problem, (b,), plus a prior ``mean``."""

    average: Tensor

    def __init__(self, average: Tensor, mean: Mean):
        super().__init__()
        self.mean = mean
        self.register_buffer("average", average)

    def forward(self, x: Tensor) -> Tensor:
        return self.average.unsqueeze(-1) + cast(Tensor, self.mean(x))


class CheapMarginalsGP(SingleTaskGP):
    """A ``SingleTaskGP`` with fixed noise whose posterior marginals are cheap.

    For q = 1 the posterior takes one Cholesky factor and the diagonal of the variance. For q > 1 it is
    GPyTorch's. ``kernel`` and ``mean`` have no batch shape: all problems share their parameters.

    Args:
        U: Points, (b, n, d) or (n, d) float64.
        y: Rewards, (b, n) or (n,) float64.
        kernel: Prior covariance, any GPyTorch kernel.
        mean: Prior mean, any GPyTorch mean.
        noise: Variance of the noise in ``y``.
    """

    covar_module: Kernel  # pyright: ignore[reportIncompatibleVariableOverride]
    mean_module: Mean
    likelihood: FixedNoiseGaussianLikelihood  # pyright: ignore[reportIncompatibleVariableOverride]
    train_targets: Tensor
    _conditioned: tuple[Tensor, Tensor] | None

    def __init__(self, U: Tensor, y: Tensor, *, kernel: Kernel, mean: Mean, noise: float):
        with settings.min_fixed_noise(double_value=0.0):  # the public code's 1e-16 would be raised
            super().__init__(
                U,
                y.unsqueeze(-1),
                torch.full_like(y, noise).unsqueeze(-1),
                covar_module=kernel,
                mean_module=mean,
                outcome_transform=None,
            )
        self.noise = noise
        self.eval()

    def train(self, mode: bool = True) -> CheapMarginalsGP:
        self._conditioned = None  # the parameters may change, or have changed
        return super().train(mode)

    def conditioned(self) -> tuple[Tensor, Tensor]:
        """The Cholesky factor L of K + noise, (b, n, n), and L^-1 (y - mean), (b, n, 1)."""
        if self._conditioned is None:
            U = self.train_inputs[0]
            L = cholesky(covariance(self.covar_module, U, U) + torch.diag_embed(self.likelihood.noise))
            residual = (self.train_targets - cast(Tensor, self.mean_module(U))).unsqueeze(-1)
            self._conditioned = L, torch.linalg.solve_triangular(L, residual, upper=False)
        return self._conditioned

    def whiten(self, X: Tensor) -> Tensor:
        """L^-1 k(U, X), (b, n, N), for points ``X``: (N, d) if all problems share them, else (b, N, d)."""
        U = self.train_inputs[0]
        if X.ndim == 2:  # one kernel call for all problems
            K = covariance(self.covar_module, U.flatten(0, -2), X).reshape(*U.shape[:-1], len(X))
        else:
            K = covariance(self.covar_module, U, X)
        return torch.linalg.solve_triangular(self.conditioned()[0], K, upper=False)

    def marginals(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior means and variances, (b, N) each, at ``X`` (N, d) or (b, N, d)."""
        V = self.whiten(X)
        prior = cast(Tensor, self.covar_module(X, diag=True))
        mean = cast(Tensor, self.mean_module(X)) + (self.conditioned()[1].mT @ V).squeeze(-2)
        return mean, torch.maximum(prior - V.square().sum(-2), VARIANCE_FLOOR * prior)

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> GPyTorchPosterior | TransformedPosterior:
        """As BoTorch's; ``X`` (batch x q x d), batch ending in b or 1 where there are b problems."""
        if X.shape[-2] != 1 or observation_noise is not False:
            return super().posterior(X, output_indices, observation_noise, posterior_transform)
        shape = torch.broadcast_shapes(X.shape[:-2], self.batch_shape)
        if self.batch_shape and X.ndim > 2 and X.shape[-3] > 1:  # different points for each problem
            points = (
                X.expand(*shape, *X.shape[-2:]).reshape(-1, *self.batch_shape, X.shape[-1]).transpose(0, 1)
            )
        else:
            points = X.reshape(-1, X.shape[-1])
        mean, variance = (part.movedim(-1, 0).reshape(shape) for part in self.marginals(points))
        normal = MultivariateNormal(mean.unsqueeze(-1), DiagLinearOperator(variance.unsqueeze(-1)))
        posterior = GPyTorchPosterior(normal)
        return posterior if posterior_transform is None else posterior_transform(posterior)

    def fantasise(self, X: Tensor) -> tuple[CheapMarginalsGP, Tensor]:
        """Add each problem's point of ``X`` (b, d) to the data, with its posterior mean as reward.

        Returns:
            The new model, and the means (b,).
        """
        X = X.unsqueeze(-2)
        mean, _ = self.marginals(X)
        U, y = torch.cat([self.train_inputs[0], X], dim=-2), torch.cat([self.train_targets, mean], dim=-1)
        gp = CheapMarginalsGP(U, y, kernel=self.covar_module, mean=self.mean_module, noise=self.noise)
        return gp, mean.squeeze(-1)


def covariance(kernel: Kernel, X: Tensor, Z: Tensor) -> Tensor:
    """k(X, Z), (b, n, N), as a plain tensor."""
    with settings.lazily_evaluate_kernels(False):
        return cast(LinearOperator, kernel(X, Z)).to_dense()


def cholesky(K: Tensor) -> Tensor:
    """Return Cholesky factors of ``K`` (b, n, n), with jitter if rounding made a matrix singular.

    Raises:
        UserError: If the largest jitter does not help.
    """
    try:
        return psd_safe_cholesky(K)
    except NotPSDError as error:
        raise UserError(
            "surrogate.noise: expected enough noise for points that are close together, got a singular "
            "covariance; raise it"
        ) from error


def information_gain(model: Model) -> Tensor:
    """Return gamma = log det(I + K / lambda) / 2 at the points observed, (b,) (paper, Adaptive EI).

    Args:
        model: An exact GP of GPyTorch or BoTorch with a Gaussian likelihood. Noise may differ between
            points.
    """
    if model.training:
        model.eval()  # transforms the inputs, as its posterior does
    exact = cast(SingleTaskGP, model)  # GPyTorch's exact GPs have the attributes used here
    U: Tensor = exact.train_inputs[0]
    noise = cast(Tensor, exact.likelihood.noise).expand(U.shape[:-1])  # a common value, or one per point
    if isinstance(model, CheapMarginalsGP):
        L = model.conditioned()[0]  # each pick of a kriging believer adds a row
    else:
        kernel = cast(Kernel, exact.covar_module)
        L = cholesky(covariance(kernel, U, U) + torch.diag_embed(noise))
    return L.diagonal(dim1=-2, dim2=-1).log().sum(-1) - 0.5 * noise.log().sum(-1)


@dataclass(frozen=True, eq=False)
class Surrogate:
    """An exact GP with fixed noise over the rewards of a problem.

    With u ~ N(0, I_d), squared distances are about 2 d. A lengthscale of 1 leaves no correlation at d = 50
    (2e-22); a lengthscale of sqrt(d) leaves exp(-1), and the search can learn.

    Args:
        kernel: A GPyTorch kernel, which is copied. It may have priors. None is an RBF kernel.
        mean: A GPyTorch mean, of the rewards minus their average if ``centred``. None is zero.
        lengthscale: Lengthscale of every part of the kernel that has one; None keeps the kernel's value.
        scaling: Whether ``lengthscale`` is in units of ``sqrt_d`` or ``absolute``.
        noise: lambda, the variance of a reward's noise.
        variance: Prior variance: the kernel is wrapped in a ``ScaleKernel``. None leaves the kernel unscaled.
        centred: Whether the average reward of a problem is subtracted first. All rewards are
            positive, so a zero mean would pull the search back to known points.
        fit: ``none`` keeps all parameters. ``map`` fits the parameters of kernel and mean to each problem by
            its marginal likelihood and priors, except ``variance`` and ``noise``. A lengthscale without a
            prior gets the prior of Hvarfner et al. (2024), LogNormal(sqrt 2 + ln(d) / 2, sqrt 3), its median
            multiplied by sqrt(12): the points here are N(0, I), theirs fill [0, 1]^d.
        ard: Whether every part of the kernel that has a lengthscale has one for each dimension, which only
            ``map`` tells apart.

    Raises:
        UserError: For a value out of its range.
    """

    kernel: Kernel | None = None
    mean: Mean | None = None
    lengthscale: float | None = 3.0
    scaling: str = "sqrt_d"
    noise: float = 0.3
    variance: float | None = 0.25
    centred: bool = True
    fit: str = "none"
    ard: bool = False

    def __post_init__(self) -> None:
        for name, kind in (("kernel", Kernel), ("mean", Mean)):
            if not isinstance(value := getattr(self, name), kind | None):
                expected = f"expected a {name} of GPyTorch, got {value!r}; name a class by _target_"
                raise OptionError(name, expected)
        for name in ("lengthscale", "variance"):
            if getattr(self, name) is not None:
                real(name, getattr(self, name), above=0.0)
        real("noise", self.noise, above=0.0)
        choice("scaling", self.scaling, SCALINGS)
        choice("fit", self.fit, FITS)
        switch("centred", self.centred)
        switch("ard", self.ard)

    @property
    def fits(self) -> bool:
        """Whether parameters are fitted, to one problem at a time."""
        return self.fit == "map"

    def model(self, U: Tensor, y: Tensor) -> CheapMarginalsGP:
        """The model of ``U`` (b, n, d) or (n, d) and rewards ``y`` (b, n) or (n,), float64.

        Raises:
            ValueError: If parameters are to be fitted to several problems, which need separate fits.
            UserError: If the kernel does not take points of d dimensions.
        """
        if self.fits and y.ndim > 1 and len(y) > 1:
            raise ValueError(f"expected one problem, whose parameters are fitted, got {len(y)}")
        kernel = self._kernel(U.shape[-1])
        average = y.mean(-1) if self.centred else y.new_zeros(y.shape[:-1])
        mean = SumMean(average, (ZeroMean() if self.mean is None else deepcopy(self.mean)).double())
        try:
            gp = CheapMarginalsGP(U, y, kernel=kernel, mean=mean, noise=self.noise)
            gp.conditioned()
        except RuntimeError as error:  # GPyTorch's, of shapes
            raise UserError(
                f"surrogate.kernel: expected a kernel of points with {U.shape[-1]} dimensions (embedding.dim "
                f"x method.scope), got {first_line(error)}"
            ) from error
        if self.fits:
            with torch.enable_grad():
                fit_gpytorch_mll_scipy(ExactMarginalLogLikelihood(gp.likelihood, gp).train())
            gp.eval()
        return gp

    def _kernel(self, dim: int) -> Kernel:
        kernel = (RBFKernel() if self.kernel is None else deepcopy(self.kernel)).double()
        for part in kernel.modules():
            if not (isinstance(part, Kernel) and part.has_lengthscale):
                continue
            if self.ard:
                part.ard_num_dims = dim
                part.raw_lengthscale = Parameter(cast(Tensor, part.raw_lengthscale).detach().repeat(1, dim))
            if self.lengthscale is not None:
                unit = math.sqrt(dim) if self.scaling == "sqrt_d" else 1.0
                part.lengthscale = torch.tensor(self.lengthscale * unit, dtype=torch.float64)
            if self.fits and not hasattr(part, "lengthscale_prior"):
                prior = LogNormalPrior(math.sqrt(2) + 0.5 * math.log(12 * dim), math.sqrt(3))
                part.register_prior("lengthscale_prior", prior, "lengthscale")
        if self.variance is not None:
            kernel = ScaleKernel(kernel).double()
            kernel.outputscale = torch.tensor(self.variance, dtype=torch.float64)
            kernel.raw_outputscale.requires_grad_(False)
        return kernel


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
