"""Acquisition functions: the contract, Monte Carlo, BoTorch's closed forms, limits and extremes."""

from __future__ import annotations

import itertools
import math
import warnings
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from botorch.acquisition import analytic

from soft_reasoning.search.acquisition import (
    EI,
    PI,
    UCB,
    AdaptiveEI,
    LogEI,
    Thompson,
    adaptive_factor,
    expected_improvement,
)
from soft_reasoning.search.botorch_acquisition import BoTorch
from soft_reasoning.search.literal import PrintedAdaptiveEI, ReleasedEI, printed_improvement
from soft_reasoning.search.marginals import Marginals
from soft_reasoning.search.surrogate import FixedRBF
from soft_reasoning.types import UserError, generator_for
from tests.contracts import acquisition as contract

warnings.filterwarnings("ignore", module="botorch")
OURS = [AdaptiveEI(), EI(), LogEI(), PI(), UCB(), Thompson(), BoTorch(analytic.LogExpectedImprovement)]
LITERAL = [PrintedAdaptiveEI(), ReleasedEI()]


def name(acquisition):
    return type(acquisition).__name__


@pytest.mark.parametrize("acquisition", OURS + LITERAL, ids=name)
@pytest.mark.parametrize(
    "check",
    [
        contract.returns_a_finite_value_for_every_point,
        contract.a_problem_alone_gets_the_values_it_gets_in_a_batch,
    ],
)
def test_contract(acquisition, check):
    check(acquisition)


@pytest.mark.parametrize("acquisition", [AdaptiveEI(), EI(), LogEI(), PI(), UCB()], ids=name)
def test_monotone_in_the_mean(acquisition):
    contract.a_higher_mean_is_never_worse(acquisition)


def tensor(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize("gain", [-0.7, -0.1, 0.0, 0.2, 0.7])
@pytest.mark.parametrize("omega", [1.0, 3.0])
def test_expected_improvement_agrees_with_monte_carlo(gain, omega):
    """10^6 antithetic draws."""
    half = torch.randn(500_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    improvement = gain + 0.2 * omega * torch.cat([half, -half])
    estimate = improvement.clamp_min(0).mean().item()
    value = expected_improvement(tensor(1.0 + gain), tensor(0.2 * omega), tensor(1.0)).item()
    assert value == pytest.approx(estimate, abs=1e-3)


def test_printed_formula_is_right_for_losses_and_wrong_for_gains():
    true = [expected_improvement(tensor(g), tensor(0.5), tensor(0.0)).item() for g in (-0.7, 0.7)]
    printed = [printed_improvement(tensor(g), tensor(0.5)).item() for g in (-0.7, 0.7)]
    assert true == pytest.approx([0.018, 0.718], abs=5e-4)
    assert printed == pytest.approx([0.018, 0.131], abs=5e-4)


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (EI(), BoTorch(analytic.ExpectedImprovement)),
        (LogEI(), BoTorch(analytic.LogExpectedImprovement)),
        (PI(), BoTorch(analytic.LogProbabilityOfImprovement)),
        (UCB(2.0), BoTorch(partial(analytic.UpperConfidenceBound, beta=2.0))),
    ],
    ids=["ei", "log_ei", "pi", "ucb"],
)
def test_agrees_with_botorch(ours, theirs):
    torch.testing.assert_close(ours(contract.marginals()), theirs(contract.marginals()), rtol=0, atol=1e-9)


def test_adaptive_tends_to_plain():
    """omega = 1 leaves EI: the information gain vanishes with large lambda, ln(1 / delta) with delta -> 1.
    Either alone leaves a larger omega, so larger values."""
    U, y = contract.data()
    X = torch.randn(50, U.shape[-1], dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    values = {}
    for noise in (0.1, 1e9):
        seen = Marginals(FixedRBF(noise=noise).fit(U, y), X, y.amax(-1))
        for delta in (0.1, 1 - 1e-12):
            values[noise, delta] = AdaptiveEI(delta)(seen)
        values[noise] = EI()(seen)
    torch.testing.assert_close(values[1e9, 1 - 1e-12], values[1e9], rtol=1e-6, atol=1e-12)
    assert (values[1e9, 0.1] > values[1e9]).all() and (values[0.1, 1 - 1e-12] > values[0.1]).all()


def test_information_gain_and_omega():
    U, y = contract.data()
    model = FixedRBF(noise=0.1).fit(U, y)
    K = torch.exp(-0.5 * torch.cdist(U, U).square() / 8)
    expected = 0.5 * torch.logdet(torch.eye(10, dtype=torch.float64) + K / 0.1)
    torch.testing.assert_close(model.information_gain, expected, rtol=0, atol=1e-9)
    # SPEC 14: uncorrelated points, lambda = 0.1: gamma 5.99 and omega 3.05 at n = 5
    gamma = FixedRBF(1.0, "absolute", 0.1).fit(100 * U[:, :5], y[:, :5]).information_gain
    assert gamma[0].item() == pytest.approx(5.99, abs=0.01)
    assert adaptive_factor(gamma, 0.1)[0].item() == pytest.approx(3.05, abs=0.005)


def test_finite_over_sixty_orders_of_magnitude():
    scales = [0.0] + [s * 10.0**e for e in (-30, -15, -5, 0, 5, 15, 30) for s in (-1, 1)]
    for mean, best in itertools.product(scales, scales):
        for sd in (1e-30, 1e-15, 1.0, 1e15, 1e30):
            value = expected_improvement(tensor(mean), tensor(sd), tensor(best))
            assert torch.isfinite(value) and value >= max(mean - best, 0.0) * (1 - 1e-12)


@pytest.mark.parametrize("acquisition", [AdaptiveEI(), EI(), LogEI(), PI(), UCB(), *LITERAL], ids=name)
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_extreme_marginals_do_not_break_a_function(acquisition, scale):
    seen = contract.marginals()
    seen.mean = seen.mean * scale
    assert torch.isfinite(acquisition(seen)).all()
    seen.incumbent = seen.incumbent + scale
    assert torch.isfinite(acquisition(seen)).all()


@pytest.mark.parametrize("acquisition", [AdaptiveEI(), EI(), LogEI(), PI(), UCB(), *LITERAL], ids=name)
@pytest.mark.parametrize("gain", [-1e30, -1.0, -1e-30, 0.0, 1e-30, 1.0, 1e30])
@pytest.mark.parametrize("sd", [1e-30, 1e-6, 1.0, 1e6, 1e30])
def test_extreme_deviations_do_not_break_a_function(acquisition, gain, sd):
    seen = SimpleNamespace(
        mean=tensor([[gain]]), sd=tensor([[sd]]), incumbent=tensor([0.0]), gamma=tensor([3.0])
    )
    assert torch.isfinite(acquisition(seen)).all()


def test_thompson_draws_have_the_posterior_moments():
    seen = contract.marginals(slice(0, 1), points=5)
    acquisition = Thompson(features=2000)
    draws = []
    for i in range(400):
        seen.shared.manual_seed(i)
        draws.append(acquisition(seen)[0])
    draws = torch.stack(draws)
    assert (draws.mean(0) - seen.mean[0]).abs().max() < 5 * seen.sd.max() / math.sqrt(400)
    torch.testing.assert_close(draws.std(0), seen.sd[0], rtol=0.15, atol=0)


def test_thompson_draws_of_observed_points_keep_the_posterior_s_deviation():
    """Where much noise was observed, the draw's own is most of it."""
    U, y = contract.data(problems=1)
    streams = [generator_for(0, "draws")]
    seen = Marginals(FixedRBF(noise=1.0).fit(U, y), U[0], y.amax(-1), streams, generator_for(0, "features"))
    acquisition = Thompson(features=2000)
    draws = torch.cat([acquisition(seen) for _ in range(400)])
    torch.testing.assert_close(draws.std(0), seen.sd[0], rtol=0.15, atol=0)


@pytest.mark.parametrize(
    "make",
    [
        analytic.UpperConfidenceBound,  # without its beta
        analytic.NoisyExpectedImprovement,
        partial(analytic.UpperConfidenceBound, beta="abc"),
        partial(analytic.UpperConfidenceBound, beta=-1.0),
        None,
    ],
)
def test_a_function_of_botorch_that_does_not_work_is_refused_when_built(make):
    with pytest.raises(
        UserError, match="acquisition.make: expected an analytic acquisition function"
    ) as error:
        BoTorch(make)
    assert "\n" not in str(error.value)


def test_bad_values():
    for delta in (0, 1, -0.1, 1.5, float("nan"), "0.1"):
        with pytest.raises(UserError, match="acquisition.delta: expected a finite number above 0 below 1"):
            AdaptiveEI(delta)
    with pytest.raises(UserError, match="acquisition.beta"):
        UCB(-1.0)
    with pytest.raises(UserError, match="acquisition.features"):
        Thompson(0)
