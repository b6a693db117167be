"""Surrogates: the contract over kernels and means, BoTorch's SingleTaskGP, fitted parameters, bad values."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from gpytorch.means import LinearMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.parts import make
from soft_reasoning.search import Surrogate
from soft_reasoning.search.surrogate import cholesky
from soft_reasoning.types import UserError
from tests.contracts import surrogate as contract
from tests.contracts.surrogate import data, points

ALL = {
    "default": Surrogate(),
    "zero mean": Surrogate(lengthscale=0.5, scaling="absolute", variance=2.0, centred=False),
    "matern": Surrogate(MaternKernel(nu=1.5)),
    "rational quadratic": Surrogate(RQKernel(), variance=None),
    "sum": Surrogate(RBFKernel() + ScaleKernel(LinearKernel())),
    "ard": Surrogate(RBFKernel(ard_num_dims=8)),
    "linear mean": Surrogate(mean=LinearMean(8)),
    "map": Surrogate(fit="map"),
    "map ard matern": Surrogate(MaternKernel(ard_num_dims=8), fit="map"),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "check",
    [
        contract.is_a_botorch_model_over_a_gpytorch_exact_gp,
        contract.batch_equals_single,
        contract.shared_points_are_points_of_each_problem_s_own,
        contract.marginals_agree_with_gpytorch,
        contract.a_fantasy_is_a_model_with_the_point_added,
        contract.constant_rewards_are_fitted,
    ],
)
def test_contract(name, check):
    check(ALL[name])


@pytest.mark.parametrize("noise", [1e-3, 0.05])
def test_agrees_with_single_task_gp(noise):
    U, y = data(n=15, d=50)
    X = points(300, 50)
    mean, variance = Surrogate(lengthscale=1.0, noise=noise, variance=1.0).model(U, y).marginals(X)
    for i in range(len(U)):
        kernel = RBFKernel().double()
        kernel.lengthscale = math.sqrt(50)
        rewards = (y[i] - y[i].mean()).unsqueeze(-1)
        theirs = SingleTaskGP(
            U[i],
            rewards,
            torch.full_like(rewards, noise),
            covar_module=kernel,
            mean_module=ZeroMean(),
            outcome_transform=None,
        ).posterior(X)
        torch.testing.assert_close(mean[i], theirs.mean.detach().squeeze(-1) + y[i].mean(), rtol=0, atol=1e-9)
        torch.testing.assert_close(variance[i], theirs.variance.detach().squeeze(-1), rtol=0, atol=1e-9)


def test_the_lengthscale_is_that_of_every_part_of_the_kernel():
    U, y = data()
    kernel = Surrogate(RBFKernel() + MaternKernel(), lengthscale=3.0).model(U, y).covar_module
    parts = [part for part in kernel.modules() if getattr(part, "has_lengthscale", False)]
    assert [part.lengthscale.item() for part in parts] == pytest.approx([3 * math.sqrt(8)] * 2)
    rbf = RBFKernel()
    rbf.lengthscale = 0.7
    assert Surrogate(rbf, lengthscale=None, variance=None).model(
        U, y
    ).covar_module.lengthscale.item() == pytest.approx(0.7)


def test_map_is_a_maximum_of_the_marginal_likelihood_and_the_prior():
    U, y = data(problems=1)
    model = Surrogate(fit="map").model(U, y)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    kernel = model.covar_module.base_kernel
    top, raw = None, kernel.raw_lengthscale.detach().clone()
    for step in (0.0, -0.5, -0.05, 0.05, 0.5):
        kernel.raw_lengthscale.data = raw + step
        model.train()
        value = mll(model(*model.train_inputs), model.train_targets).item()
        top = value if top is None else top
        assert value <= top + 1e-6
    assert model.covar_module.outputscale.item() == pytest.approx(0.25), "the variance is given"


def test_a_new_fit_is_not_hidden_by_what_was_computed_before():
    U, y = data(problems=1)
    model = Surrogate().model(U, y)
    before = model.marginals(points())[0]
    model.train()
    model.covar_module.outputscale = 1.0
    model.eval()
    torch.testing.assert_close(
        model.marginals(points())[0], Surrogate(variance=1.0).model(U, y).marginals(points())[0]
    )
    assert (model.marginals(points())[0] - before).abs().max() > 0.01


@pytest.mark.parametrize(
    "overrides",
    [
        ["surrogate.kernel._target_=gpytorch.kernels.MaternKernel", "+surrogate.kernel.nu=0.5"],
        ["surrogate=map_ard", "d=4", "method.scope=2"],
        ["surrogate.mean._target_=gpytorch.means.ConstantMean", "surrogate.fit=map"],
    ],
    ids=lambda overrides: overrides[0].rpartition("=")[2],
)
def test_any_kernel_and_mean_from_the_command_line(overrides):
    surrogate = make(compose_config(overrides).surrogate)
    U, y = data(problems=1)
    mean, variance = surrogate.model(U, y).marginals(points())
    default = Surrogate().model(U, y).marginals(points())
    assert torch.isfinite(mean).all() and (variance > 0).all()
    assert max((mean - default[0]).abs().max(), (variance - default[1]).abs().max()) > 1e-6


def test_bad_values():
    for kwargs, word in (
        ({"lengthscale": 0.0}, "lengthscale: expected"),
        ({"noise": 0.0}, "noise: expected"),
        ({"scaling": "log"}, "sqrt_d, absolute"),
        ({"centred": "no"}, "centred: expected true or false"),
        ({"fit": "mle"}, "none, map"),
        ({"kernel": ZeroMean()}, "kernel: expected a kernel of GPyTorch, got ZeroMean"),
        ({"mean": RBFKernel()}, "mean: expected a mean of GPyTorch"),
    ):
        with pytest.raises(UserError, match=word):
            Surrogate(**kwargs)
    with pytest.raises(UserError, match="kernel: expected a kernel of points with 8 dimensions") as error:
        Surrogate(RBFKernel(ard_num_dims=3)).model(*data())
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="expected one problem"):
        Surrogate(fit="map").model(*data())


@pytest.mark.filterwarnings("ignore:A not p.d.")
def test_a_nearly_singular_problem_is_fitted_and_changes_no_other():
    """Points twice over, and noise that rounding swallows: a bare factorisation fails."""
    U, y = data(problems=3)
    U, y = torch.cat([U, U], dim=1), torch.cat([y, y], dim=1)
    U[2] += 0.1 * points(20)
    surrogate = Surrogate(noise=1e-18)
    together = surrogate.model(U, y)
    for i in range(3):  # L itself depends on the number of threads; L L^T shows jitter, 1e-8
        alone = surrogate.model(U[i : i + 1], y[i : i + 1])
        factors = together.conditioned()[0][i], alone.conditioned()[0][0]
        torch.testing.assert_close(*(L @ L.mT for L in factors), rtol=0, atol=1e-12)
    torch.testing.assert_close(together.marginals(U)[0], y, rtol=0, atol=1e-3)
    with pytest.raises(UserError, match="noise: .* raise it"):
        cholesky(-torch.eye(3, dtype=torch.float64)[None])
