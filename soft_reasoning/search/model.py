"""An exact Gaussian process with an RBF kernel, for many problems at once.

    k(u, u') = s^2 exp(-|(u - u') / l|^2 / 2),   y = f(u) + eta,   eta ~ N(0, lambda)

A BoTorch ``Model``, so that any BoTorch acquisition function takes it. Where only marginals are wanted
(q = 1, or :meth:`ExactRBF.marginals`) the posterior is written directly: one cached Cholesky factor of
K + lambda I and the variance's diagonal, never an N x N covariance.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch import Tensor

from soft_reasoning.search.points import Around, half_norms, products
from soft_reasoning.types import UserError

VARIANCE_FLOOR = 1e-12
"""Relative to s^2: keeps standard deviations positive at observed points when lambda is tiny."""

JITTERS = (1e-8, 1e-6, 1e-4)
"""Relative to s^2: what is added to the diagonal of a matrix that rounding has left singular, in turn."""


class ExactRBF(Model):
    """Posterior of b problems with n observations each.

    ``U`` (b, n, d), ``y`` (b, n), ``lengthscale`` (b, 1) or (b, d), ``mean`` (b,) the prior mean; all
    float64. ``scale`` is s^2 and ``noise`` lambda.
    """

    num_outputs = 1

    def __init__(
        self, U: Tensor, y: Tensor, *, lengthscale: Tensor, mean: Tensor, scale: float, noise: float
    ):
        super().__init__()
        self.U, self.y = U, y
        self.lengthscale, self.mean, self.scale, self.noise = lengthscale, mean, scale, noise
        self._scaled = U / lengthscale.unsqueeze(-2)
        K = self.kernel(self._scaled, self._scaled) + noise * torch.eye(U.shape[-2], dtype=U.dtype)
        self.cholesky = factor(K, scale)  # (b, n, n), of K + lambda I
        residual = (y - mean.unsqueeze(-1)).unsqueeze(-1)
        self.whitened = torch.linalg.solve_triangular(self.cholesky, residual, upper=False)  # L^-1 (y - m)

    @property
    def batch_shape(self) -> torch.Size:
        return self.U.shape[:-2]

    def kernel(self, a: Tensor, b: Tensor | Around, b_norms: Tensor | None = None) -> Tensor:
        """(..., n, N) covariances of points already divided by the lengthscale.

        ``b_norms`` (..., N): :func:`half_norms` of ``b`` where the caller has them already.
        """
        norms = half_norms(b) if b_norms is None else b_norms
        exponent = products(a, b).sub_(norms.unsqueeze(-2)).sub_(half_norms(a).unsqueeze(-1))
        return exponent.clamp_(max=0.0).add_(math.log(self.scale)).exp_()

    def scaled(self, X: Tensor | Around) -> Tensor | Around:
        """``X`` (N, d) or (b, N, d) over the lengthscale; stays (N, d) where all problems share one."""
        if self.shares_lengthscale:
            return X / self.lengthscale[0]
        if isinstance(X, Around):
            X = X.written()
        return X / self.lengthscale.unsqueeze(-2)

    @property
    def shares_lengthscale(self) -> bool:
        return self.lengthscale.stride(0) == 0 or len(self.lengthscale) == 1

    def whiten(self, X: Tensor | Around, norms: Tensor | None = None) -> Tensor:
        """(b, n, N): L^-1 k(U, X) for points ``X`` from :meth:`scaled`, ``norms`` as in :meth:`kernel`."""
        return torch.linalg.solve_triangular(self.cholesky, self.kernel(self._scaled, X, norms), upper=False)

    def marginals(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior means and variances (b, N) at ``X`` (N, d) or (b, N, d)."""
        V = self.whiten(self.scaled(X))
        mean = self.mean.unsqueeze(-1) + (self.whitened.transpose(-1, -2) @ V).squeeze(-2)
        variance = self.scale - V.square().sum(-2)
        return mean, variance.clamp_min(self.scale * VARIANCE_FLOOR)

    @property
    def information_gain(self) -> Tensor:
        """(b,): gamma = log det(I + K / lambda) / 2 at the observed points (paper, Adaptive EI)."""
        n = self.U.shape[-2]
        logdet = self.cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return logdet - 0.5 * n * math.log(self.noise)

    def select(self, problem: int) -> ExactRBF:
        """The model of one problem alone, with no batch dimension of its own kept (b = 1)."""
        one = slice(problem, problem + 1)
        return self._like(self.U[one], self.y[one], self.lengthscale[one], self.mean[one])

    def believe(self, X: Tensor, y: Tensor) -> ExactRBF:
        """Condition on values ``y`` (b, q) at ``X`` (b, q, d), the prior mean kept."""
        return self._like(
            torch.cat([self.U, X], dim=-2), torch.cat([self.y, y], dim=-1), self.lengthscale, self.mean
        )

    def _like(self, U: Tensor, y: Tensor, lengthscale: Tensor, mean: Tensor) -> ExactRBF:
        return ExactRBF(U, y, lengthscale=lengthscale, mean=mean, scale=self.scale, noise=self.noise)

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> GPyTorchPosterior:
        """Joint posterior over the q points of ``X`` (batch_shape x b x q x d), as BoTorch asks for it.

        A missing problem dimension is broadcast. For q = 1 nothing but the variance is computed.
        """
        if X.ndim == 2:
            X = X.unsqueeze(0)
        q = X.shape[-2]
        scaled = X / self.lengthscale.unsqueeze(-2)  # (..., b, q, d)
        V = self._whiten_batch(scaled)
        mean = self.mean.unsqueeze(-1) + (self.whitened.transpose(-1, -2) @ V).squeeze(-2)
        if q == 1:
            variance = (self.scale - V.square().sum(-2)).clamp_min(self.scale * VARIANCE_FLOOR)
            covariance = variance.unsqueeze(-1)
        else:
            covariance = self.kernel(scaled, scaled) - V.transpose(-1, -2) @ V
        if observation_noise is not False:
            added = self.noise if observation_noise is True else observation_noise
            covariance = covariance + torch.as_tensor(added, dtype=X.dtype) * torch.eye(q, dtype=X.dtype)
        posterior = GPyTorchPosterior(MultivariateNormal(mean, to_linear_operator(covariance)))
        return posterior if posterior_transform is None else posterior_transform(posterior)

    def _whiten_batch(self, scaled: Tensor) -> Tensor:
        """(..., b, n, q): L^-1 k(U, X) with leading batch dimensions folded into one long solve."""
        shape, (n, q) = scaled.shape[:-2], (self.U.shape[-2], scaled.shape[-2])
        b = self.U.shape[0]
        points = scaled.expand(*shape[:-1], b, q, -1).reshape(-1, b, q, scaled.shape[-1])
        flat = points.transpose(0, 1).reshape(b, -1, scaled.shape[-1])  # (b, batch * q, d)
        V = self.whiten(flat).reshape(b, n, -1, q).permute(2, 0, 1, 3)
        return V.reshape(*shape[:-1], b, n, q)


def factor(K: Tensor, scale: float) -> Tensor:
    """(b, n, n): the Cholesky factors of ``K`` (b, n, n); a matrix that has none gets the first of the
    :data:`JITTERS` that helps it, whatever the others need."""
    L, failed = torch.linalg.cholesky_ex(K)
    added = torch.zeros(len(K), 1, 1, dtype=K.dtype)
    for jitter in JITTERS:
        if not failed.any():
            break
        added = torch.where(failed[:, None, None] > 0, jitter * scale, added)
        L, failed = torch.linalg.cholesky_ex(K + added * torch.eye(K.shape[-1], dtype=K.dtype))
    if failed.any():
        raise UserError("surrogate.noise: expected enough of it to fit points that lie close together, got a "
                        "singular covariance; raise it")  # fmt: skip
    return L
