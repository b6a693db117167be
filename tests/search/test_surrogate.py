"""Surrogates: the contract, BoTorch's SingleTaskGP, prior means, fitted lengthscales, bad values."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean

from soft_reasoning.search.acquisition import EI
from soft_reasoning.search.marginals import Marginals
from soft_reasoning.search.model import factor
from soft_reasoning.search.surrogate import MAPRBF, FixedRBF, fitted
from soft_reasoning.types import UserError
from tests.contracts import surrogate as contract
from tests.contracts.acquisition import data

ALL = [
    FixedRBF(),
    FixedRBF(0.5, "absolute", 0.1, "zero", 2.0),
    FixedRBF(mean="constant"),
    MAPRBF(),
    MAPRBF(ard=True),
]


def points(n=300, d=8):
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("surrogate", ALL, ids=range(len(ALL)))
@pytest.mark.parametrize(
    "check",
    [
        contract.batch_equals_single,
        contract.posterior_agrees_with_marginals,
        contract.observing_lowers_the_variance,
        contract.constant_rewards_are_fitted,
    ],
)
def test_contract(surrogate, check):
    check(surrogate)


def single_task_gp(U, y, noise, lengthscale):
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    gp = SingleTaskGP(
        U,
        y.unsqueeze(-1),
        train_Yvar=torch.full_like(y, noise).unsqueeze(-1),
        covar_module=kernel,
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    return gp.eval()


@pytest.mark.parametrize("noise", [1e-3, 0.05])
def test_agrees_with_single_task_gp(noise):
    U, y = data(n=15, d=50)
    X = points(300, 50)
    model = FixedRBF(noise=noise).fit(U, y)
    mean, variance = model.marginals(X)
    for i in range(len(U)):
        average = y[i].mean()
        theirs = single_task_gp(U[i], y[i] - average, noise, math.sqrt(50)).posterior(X)
        torch.testing.assert_close(mean[i], theirs.mean.detach().squeeze(-1) + average, rtol=0, atol=1e-9)
        torch.testing.assert_close(variance[i], theirs.variance.detach().squeeze(-1), rtol=0, atol=1e-9)
        joint = model.select(i).posterior(X[:5].unsqueeze(0)).covariance_matrix[0]
        expected = single_task_gp(U[i], y[i] - average, noise, math.sqrt(50)).posterior(X[:5])
        torch.testing.assert_close(joint, expected.covariance_matrix.detach(), rtol=0, atol=1e-9)


def test_believing_a_point_is_refitting_with_it():
    U, y = data()
    X = points()
    model = FixedRBF().fit(U, y)
    seen = Marginals(model, X, model.marginals(U)[0].amax(-1))
    for index in (torch.tensor([3, 50, 299]), torch.tensor([7, 3, 3])):
        seen.believe(index)
    mean, variance = seen.model.marginals(X)
    assert seen.model.U.shape[1] == 12
    torch.testing.assert_close(seen.mean, mean, rtol=0, atol=1e-9)
    torch.testing.assert_close(seen.sd.square(), variance, rtol=0, atol=1e-9)


def test_prior_means():
    U, y = data()
    far = 1e3 * points(1)
    for kind, expected in (("zero", 0 * y[:, 0]), ("centred", y.mean(-1))):
        mean, variance = FixedRBF(mean=kind, variance=1.5).fit(U, y).marginals(far)
        torch.testing.assert_close(mean[:, 0], expected)
        assert variance.min().item() == pytest.approx(1.5)
    K = torch.exp(-0.5 * torch.cdist(U, U).square() / 8) + 0.05 * torch.eye(10).double()
    weight = torch.linalg.solve(K, torch.ones(3, 10, 1).double()).squeeze(-1)
    constant = (weight * y).sum(-1) / weight.sum(-1)
    torch.testing.assert_close(FixedRBF(mean="constant").fit(U, y).mean, constant, rtol=0, atol=1e-9)


def test_map_lengthscale_is_a_maximum_of_the_posterior():
    U, y = data()
    for surrogate in (MAPRBF(), MAPRBF(noise=0.2)):
        log = surrogate.fit(U, y).lengthscale.log()
        top = surrogate.log_posterior(U, y, log)
        for step in (-0.5, -0.05, 0.05, 0.5):
            assert (surrogate.log_posterior(U, y, log + step) <= top + 1e-6).all()


def test_map_tells_smooth_from_rough():
    U, _ = data(problems=1, n=40)
    smooth = U[..., 0] * 0.3
    rough = torch.randn(1, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    assert MAPRBF().fit(U, smooth).lengthscale > 1.5 * MAPRBF().fit(U, rough).lengthscale


def test_ard_finds_the_dimension_that_matters():
    U, _ = data(problems=1, n=40)
    lengthscale = MAPRBF(ard=True).fit(U, torch.sin(2 * U[..., 0])).lengthscale[0]
    assert lengthscale.argmin() == 0 and lengthscale[0] < 0.5 * lengthscale[1:].median()


def test_gradients_pass_through_the_posterior():
    U, y = data(problems=1)
    model = FixedRBF(variance=2.0).fit(U, y)
    X = points(4).requires_grad_()

    def value(X):
        return EI()(Marginals(model, X, y.amax(-1)))

    assert torch.autograd.gradcheck(value, X, atol=1e-6)


def test_bad_values():
    for kwargs, word in (
        ({"lengthscale": 0.0}, "surrogate.lengthscale"),
        ({"noise": 0.0}, "surrogate.noise"),
        ({"noise": -1.0}, "surrogate.noise"),
        ({"scaling": "log"}, "sqrt_d, absolute"),
        ({"mean": "median"}, "centred, zero, constant"),
        ({"variance": float("nan")}, "surrogate.variance"),
    ):
        with pytest.raises(UserError, match=word):
            FixedRBF(**kwargs)
    with pytest.raises(UserError, match="surrogate.noise"):
        MAPRBF(noise=0)
    with pytest.raises(UserError, match="surrogate.ard: expected true or false"):
        MAPRBF(ard="no")


def test_a_nearly_singular_problem_is_fitted_and_changes_no_other():
    """Points twice over, and noise that rounding swallows: a bare factorisation fails."""
    U, y = data(problems=3)
    U, y = torch.cat([U, U], dim=1), torch.cat([y, y], dim=1)
    U[2] += 0.1 * points(20)
    surrogate = FixedRBF(noise=1e-18)
    together = surrogate.fit(U, y)
    for i in range(3):
        alone = surrogate.fit(U[i : i + 1], y[i : i + 1])
        assert torch.equal(together.cholesky[i], alone.cholesky[0])
    K = together.kernel(together._scaled, together._scaled)[2] + 1e-18 * torch.eye(20).double()
    assert torch.equal(together.cholesky[2], torch.linalg.cholesky(K)), "what needs nothing gets nothing"
    torch.testing.assert_close(together.marginals(U)[0], y, rtol=0, atol=1e-3)
    with pytest.raises(UserError, match="surrogate.noise: .* raise it"):
        factor(-torch.eye(3, dtype=torch.float64)[None], 1.0)


@pytest.mark.parametrize("mean", ["centred", "zero", "constant"])
def test_map_judges_the_model_that_it_returns(mean):
    """The likelihood that chooses a lengthscale is that of the fitted model, in the units of the rewards."""
    U, y = data()
    surrogate = MAPRBF(noise=0.1, mean=mean, variance=0.25)
    log = torch.full((len(U), 1), 1.3, dtype=torch.float64)
    model = fitted(U, y, log.exp(), mean, 0.25, 0.1)
    covariance = model.kernel(model._scaled, model._scaled) + 0.1 * torch.eye(y.shape[1], dtype=torch.float64)
    likelihood = torch.distributions.MultivariateNormal(model.mean.unsqueeze(-1).expand_as(y), covariance)
    prior = torch.distributions.LogNormal(math.sqrt(2) + 0.5 * math.log(12 * U.shape[-1]), math.sqrt(3))
    expected = likelihood.log_prob(y) + prior.log_prob(log.exp()).sum(-1)
    constant = surrogate.log_posterior(U, y, log) - expected
    torch.testing.assert_close(constant, constant[:1].expand_as(constant), rtol=0, atol=1e-9)
