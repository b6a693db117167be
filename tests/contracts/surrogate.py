"""What every surrogate must do; a test file parametrises over these."""

from __future__ import annotations

import torch

from tests.contracts.acquisition import data


def batch_equals_single(surrogate):
    U, y = data()
    X = torch.randn(50, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mean, variance = surrogate.fit(U, y).marginals(X)
    for i in range(len(U)):
        one_mean, one_variance = surrogate.fit(U[i : i + 1], y[i : i + 1]).marginals(X)
        torch.testing.assert_close(one_mean[0], mean[i], rtol=0, atol=1e-9)
        torch.testing.assert_close(one_variance[0], variance[i], rtol=0, atol=1e-9)


def posterior_agrees_with_marginals(surrogate):
    U, y = data()
    model = surrogate.fit(U, y)
    X = torch.randn(20, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mean, variance = model.marginals(X)
    joint = model.posterior(X.expand(3, -1, -1))
    single = model.posterior(X[:, None, None, :])  # points x problems x q x d
    for posterior, move in ((joint, lambda t: t.squeeze(-1)), (single, lambda t: t[..., 0, 0].T)):
        torch.testing.assert_close(move(posterior.mean), mean, rtol=0, atol=1e-9)
        torch.testing.assert_close(move(posterior.variance), variance, rtol=0, atol=1e-9)


def observing_lowers_the_variance(surrogate):
    U, y = data()
    model = surrogate.fit(U, y)
    _, seen = model.marginals(U)
    assert (seen < model.scale).all()
    more = model.believe(U[:, :1] + 0.1, y[:, :1])
    _, after = more.marginals(U)
    assert (after <= seen + 1e-12).all() and (after[:, 0] < seen[:, 0]).all()


def constant_rewards_are_fitted(surrogate):
    U, _ = data()
    mean, variance = surrogate.fit(U, torch.ones(3, 10, dtype=torch.float64)).marginals(U)
    assert torch.isfinite(mean).all() and (variance > 0).all()
