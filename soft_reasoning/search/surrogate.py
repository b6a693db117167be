"""The surrogate: kernel, mean and noise of the Gaussian process, and the fit of their parameters."""

# GPyTorch has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from __future__ import annotations

import math
from copy import deepcopy
from typing import TypeVar, cast

import torch
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.means import Mean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from soft_reasoning.checks import OptionError, choice, real, switch
from soft_reasoning.search.model import CheapMarginalsGP, SumMean
from soft_reasoning.types import UserError

SCALINGS = ("sqrt_d", "absolute")
FITS = ("none", "map")

Part = TypeVar("Part", Kernel, Mean)


class Surrogate:
    """An exact GP with fixed noise over the rewards of a problem.

    With u ~ N(0, I_d), squared distances are about 2 d. A lengthscale of 1 leaves no correlation at d = 50
    (2e-22); a lengthscale of sqrt(d) leaves exp(-1), and the search can learn.

    Args:
        kernel: A GPyTorch kernel, which is copied. It may have ARD and priors.
        mean: A GPyTorch mean, of the rewards minus their average if ``centred``.
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

    Raises:
        UserError: For a value out of its range.
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        mean: Mean | None = None,
        lengthscale: float | None = 3.0,
        scaling: str = "sqrt_d",
        noise: float = 0.3,
        variance: float | None = 0.25,
        centred: bool = True,
        fit: str = "none",
    ):
        self.kernel = _check_part("kernel", kernel or RBFKernel(), Kernel)
        self.mean = _check_part("mean", mean or ZeroMean(), Mean)
        self.lengthscale: float | None = (
            None if lengthscale is None else real("lengthscale", lengthscale, above=0.0)
        )
        self.scaling: str = choice("scaling", scaling, SCALINGS)
        self.noise: float = real("noise", noise, above=0.0)
        self.variance: float | None = None if variance is None else real("variance", variance, above=0.0)
        self.centred: bool = switch("centred", centred)
        self.fits: bool = choice("fit", fit, FITS) == "map"

    def fit(self, U: Tensor, y: Tensor) -> CheapMarginalsGP:
        """The model of ``U`` (b, n, d) or (n, d) and rewards ``y`` (b, n) or (n,), float64.

        Raises:
            ValueError: If parameters are to be fitted to several problems, which need separate fits.
            UserError: If the kernel does not take points of d dimensions.
        """
        if self.fits and y.ndim > 1 and len(y) > 1:
            raise ValueError(f"expected one problem, whose parameters are fitted, got {len(y)}")
        kernel = self._kernel(U.shape[-1])
        average = y.mean(-1) if self.centred else y.new_zeros(y.shape[:-1])
        mean = SumMean(average, deepcopy(self.mean).double())
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
        kernel = deepcopy(self.kernel).double()
        for part in kernel.modules():
            if not getattr(part, "has_lengthscale", False):
                continue
            if self.lengthscale is not None:
                unit = math.sqrt(dim) if self.scaling == "sqrt_d" else 1.0
                part.lengthscale = torch.tensor(self.lengthscale * unit, dtype=torch.float64)
            if self.fits and not hasattr(part, "lengthscale_prior"):
                prior = LogNormalPrior(math.sqrt(2) + 0.5 * math.log(12 * dim), math.sqrt(3))
                cast(Kernel, part).register_prior("lengthscale_prior", prior, "lengthscale")
        if self.variance is not None:
            kernel = ScaleKernel(kernel).double()
            kernel.outputscale = torch.tensor(self.variance, dtype=torch.float64)
            kernel.raw_outputscale.requires_grad_(False)
        return kernel


def _check_part(name: str, value: object, kind: type[Part]) -> Part:
    if not isinstance(value, kind):
        raise OptionError(
            name, f"expected a {kind.__name__.lower()} of GPyTorch, got {value!r}; name a class by _target_"
        )
    return value


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
