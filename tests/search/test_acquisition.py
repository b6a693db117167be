"""Acquisition functions: the contract, Monte Carlo, limits, extremes, BoTorch's models and optimisers."""

from __future__ import annotations

import doctest
import math
import warnings

import pytest
import torch
from botorch.acquisition import analytic
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf, optimize_acqf_discrete

from soft_reasoning.search import NoiseAdaptiveExpectedImprovement, Surrogate, acquisition
from soft_reasoning.search.acquisition import (
    PrintedAdaptiveEI,
    ReleasedEI,
    adaptive_factor,
    printed_improvement,
)
from soft_reasoning.search.surrogate import information_gain
from soft_reasoning.types import UserError
from tests.contracts import acquisition as contract
from tests.contracts.surrogate import data, points

warnings.filterwarnings("ignore", module="botorch")
IMPROVING = {
    "adaptive_ei": NoiseAdaptiveExpectedImprovement,
    "ei": analytic.ExpectedImprovement,
    "log_ei": analytic.LogExpectedImprovement,
    "pi": analytic.LogProbabilityOfImprovement,
}
UCB = analytic.UpperConfidenceBound
ALL = {
    **IMPROVING,
    "ucb": lambda model, best: UCB(model, beta=2.0),
    "printed": PrintedAdaptiveEI,
    "released": ReleasedEI,
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "check",
    [
        contract.returns_a_finite_value_for_every_point,
        contract.a_problem_alone_gets_the_values_it_gets_in_a_batch,
        contract.is_differentiable,
    ],
)
def test_contract(name, check):
    check(ALL[name])


@pytest.mark.parametrize("name", IMPROVING)
def test_monotone_in_the_mean(name):
    contract.a_higher_mean_is_never_worse(IMPROVING[name])


def tensor(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize("function", [NoiseAdaptiveExpectedImprovement, PrintedAdaptiveEI])
def test_adaptive_is_expected_improvement_with_wider_deviations(function):
    """By Monte Carlo, 10^6 antithetic draws. The printed formula is too small for gains."""
    model, best = contract.model_and_best()
    mean, variance = (part[:, :5] for part in model.marginals(points(200)))
    omega = adaptive_factor(information_gain(model), 0.3).unsqueeze(-1)
    half = torch.randn(500_000, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for rise in (-1.0, 1.0):
        improvement = mean - best + rise + omega * variance.sqrt() * torch.cat([half, -half])
        expected = improvement.clamp_min(0).mean(0)
        values = function(model, best - rise, delta=0.3)(points(200)[:5, None, None, :]).T
        if function is PrintedAdaptiveEI and rise > 0:
            assert (values < expected - 0.1).all()
        else:
            torch.testing.assert_close(values, expected, rtol=0, atol=3e-3)


def test_printed_formula_by_hand():
    printed = [printed_improvement(tensor(g), tensor(0.5)).item() for g in (-0.7, 0.7)]
    assert printed == pytest.approx([0.018, 0.131], abs=5e-4)  # expected improvement: 0.018, 0.718


def test_adaptive_tends_to_plain():
    """omega = 1 leaves EI: the information gain vanishes with large lambda, ln(1 / delta) with delta -> 1.
    Either alone leaves a larger omega, so larger values."""
    U, y = data()
    X, best = points()[:, None, None, :], y.amax(-1, keepdim=True)
    values = {}
    for noise in (0.1, 1e9):
        model = Surrogate(noise=noise).model(U, y)
        for delta in (0.1, 1 - 1e-12):
            values[noise, delta] = NoiseAdaptiveExpectedImprovement(model, best, delta)(X)
        values[noise] = analytic.ExpectedImprovement(model, best)(X)
    torch.testing.assert_close(values[1e9, 1 - 1e-12], values[1e9], rtol=1e-6, atol=1e-12)
    assert (values[1e9, 0.1] > values[1e9]).all() and (values[0.1, 1 - 1e-12] > values[0.1]).all()


def test_information_gain_and_omega():
    U, y = data()
    model = Surrogate(lengthscale=1.0, noise=0.1, variance=1.0).model(U, y)
    K = torch.exp(-0.5 * torch.cdist(U, U).square() / 8)
    expected = 0.5 * torch.logdet(torch.eye(10, dtype=torch.float64) + K / 0.1)
    torch.testing.assert_close(information_gain(model), expected, rtol=0, atol=1e-9)
    # uncorrelated points, lambda = 0.1: gamma = n ln(11) / 2
    model = Surrogate(lengthscale=1.0, scaling="absolute", noise=0.1, variance=1.0).model(
        100 * U[:, :5], y[:, :5]
    )
    assert information_gain(model)[0].item() == pytest.approx(2.5 * math.log(11), abs=1e-6)
    assert adaptive_factor(information_gain(model), 0.1)[0].item() == pytest.approx(3.05, abs=0.005)


@pytest.mark.parametrize("noise", ["inferred", "given"])
def test_information_gain_of_a_plain_botorch_model(noise):
    U, y = data(problems=1)
    U, y = U[0], y[0].unsqueeze(-1)
    model = SingleTaskGP(U, y, torch.full_like(y, 0.1) if noise == "given" else None, outcome_transform=None)
    K = model.covar_module(U).to_dense() / model.likelihood.noise.mean()
    expected = 0.5 * torch.logdet(torch.eye(len(U), dtype=torch.float64) + K)
    torch.testing.assert_close(information_gain(model), expected, rtol=0, atol=1e-9)


def test_the_information_gain_is_that_of_the_inputs_that_the_posterior_reads():
    U, y = data(problems=1)
    model = SingleTaskGP(100 * U[0], y[0].unsqueeze(-1), input_transform=Normalize(U.shape[-1]))
    gain = information_gain(model)  # of a model that was not evaluated yet
    torch.testing.assert_close(gain, information_gain(model.eval()))


def test_in_botorch_s_optimisers_with_a_botorch_model():
    """Minimising the negated function gives the point that maximising it gives."""
    X = torch.rand(12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = -(X - 0.3).square().sum(-1, keepdim=True)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    maxima = []
    for sign, best in ((1, y.max()), (-1, -y.max())):
        model = SingleTaskGP(X, sign * y, torch.full_like(y, 1e-4))
        function = NoiseAdaptiveExpectedImprovement(model, best, maximize=sign == 1)
        torch.manual_seed(0)  # BoTorch draws its starting points from the global generator
        point, value = optimize_acqf(
            function, bounds, q=1, num_restarts=4, raw_samples=32, options={"seed": 0}
        )
        discrete, _ = optimize_acqf_discrete(function, q=1, choices=torch.cat([X, point.detach()]))
        assert torch.equal(discrete, point.detach()) and value > 0
        maxima.append(point)
    torch.testing.assert_close(maxima[0], maxima[1], rtol=0, atol=1e-3)


def test_the_docstring_s_example_runs():
    outcome = doctest.testmod(acquisition)
    assert outcome.attempted >= 10 and outcome.failed == 0


def test_bad_values():
    model, best = contract.model_and_best()
    for delta in (0, 1, -0.1, 1.5, float("nan"), "0.1"):
        with pytest.raises(UserError, match="delta: expected a finite number above 0 below 1"):
            NoiseAdaptiveExpectedImprovement(model, best, delta)
