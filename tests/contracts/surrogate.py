"""What every surrogate must do; a test file parametrises over these."""

from __future__ import annotations

import torch
from botorch.models.model import Model
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.models import ExactGP

from soft_reasoning.types import generator_for


def data(problems=3, n=10, d=8, seed=0):
    """U (b, n, d), y (b, n)."""
    generator = generator_for(seed, "test data")
    U = torch.randn(problems, n, d, dtype=torch.float64, generator=generator)
    return U, torch.rand(problems, n, dtype=torch.float64, generator=generator)


def points(n=50, d=8, seed=1):
    return torch.randn(n, d, dtype=torch.float64, generator=generator_for(seed, "test points"))


def models(surrogate, U, y):
    """One model for all problems, or one for each where parameters are fitted."""
    parts = [slice(i, i + 1) for i in range(len(U))] if surrogate.fits else [slice(None)]
    return [(surrogate.model(U[part], y[part]), U[part], y[part]) for part in parts]


def is_a_botorch_model_over_a_gpytorch_exact_gp(surrogate):
    for model, U, _ in models(surrogate, *data()):
        assert isinstance(model, Model) and isinstance(model, ExactGP)
        assert isinstance(model.likelihood, FixedNoiseGaussianLikelihood)
        assert model.batch_shape == U.shape[:1] and model.num_outputs == 1


def batch_equals_single(surrogate):
    U, y = data()
    together = torch.cat([torch.stack(m.marginals(points()), -1) for m, _, _ in models(surrogate, U, y)])
    for i in range(len(U)):
        alone = torch.stack(surrogate.model(U[i : i + 1], y[i : i + 1]).marginals(points()), -1)
        torch.testing.assert_close(alone[0], together[i], rtol=0, atol=1e-9)


def shared_points_are_points_of_each_problem_s_own(surrogate):
    for model, U, _ in models(surrogate, *data()):
        repeated = points().expand(len(U), -1, -1)
        for a, b in zip(model.marginals(points()), model.marginals(repeated), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def marginals_agree_with_gpytorch(surrogate):
    """The cheap posterior for q = 1 against the joint one, which is GPyTorch's."""
    X = points(20)
    for model, U, _ in models(surrogate, *data()):
        mean, variance = model.marginals(X)
        joint = model.posterior(X.expand(len(U), -1, -1))
        single = model.posterior(X[:, None, None, :])  # points x 1 x q x d
        repeated = model.posterior(X[:, None, None, :].expand(-1, len(U), -1, -1))
        moves = [
            (joint, lambda t: t.squeeze(-1)),
            (single, lambda t: t[..., 0, 0].T),
            (repeated, lambda t: t[..., 0, 0].T),
        ]
        for posterior, move in moves:
            torch.testing.assert_close(move(posterior.mean), mean, rtol=0, atol=1e-9)
            torch.testing.assert_close(move(posterior.variance), variance, rtol=0, atol=1e-9)


def a_fantasy_is_a_model_with_the_point_added(surrogate):
    for model, U, _ in models(surrogate, *data()):
        X = points(len(U), 8, seed=2)
        fantasy, believed = model.fantasise(X)
        torch.testing.assert_close(
            believed, model.marginals(X.unsqueeze(-2))[0].squeeze(-1), rtol=0, atol=1e-10
        )
        far = points(30)
        torch.testing.assert_close(fantasy.marginals(far)[0], model.marginals(far)[0], rtol=0, atol=1e-8)
        # What the point tells of the others: their squared covariances by its variance.
        both = torch.cat([X.unsqueeze(-2), far.expand(len(U), -1, -1)], dim=-2)
        covariance = model.posterior(both).distribution.covariance_matrix
        explained = covariance[:, 0, 1:].square() / (covariance[:, :1, 0] + model.noise)
        expected = model.marginals(far)[1] - explained
        torch.testing.assert_close(fantasy.marginals(far)[1], expected, rtol=0, atol=1e-7)


def constant_rewards_are_fitted(surrogate):
    points, _ = data()
    for model, U, _ in models(surrogate, points, torch.ones(3, 10, dtype=torch.float64)):
        mean, variance = model.marginals(U)
        assert torch.isfinite(mean).all() and (variance > 0).all()
