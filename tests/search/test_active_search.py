"""Active search and its surrogate: Bayes' rule, limits, extremes, the budget, every option, BoTorch."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel

from soft_reasoning.configuration.build import build_method
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.search import ActiveSearch, BayesianOptimiser, BinarySurrogate, Surrogate
from soft_reasoning.types import UserError, generator_for
from tests.contracts import acquisition as contract
from tests.contracts import surrogate as surrogates
from tests.contracts.surrogate import data, points

OPTIONS = ["surrogate=binary", "acquisition=active_search"]


@pytest.mark.parametrize("exploit_above", [-9.0, 9.0])
@pytest.mark.parametrize(
    "check",
    [
        contract.returns_a_finite_value_for_every_point,
        contract.a_problem_alone_gets_the_values_it_gets_in_a_batch,
        contract.a_higher_mean_is_never_worse,
        contract.is_differentiable,
    ],
)
def test_contract_of_the_acquisition_function(check, exploit_above):
    check(partial(ActiveSearch, exploit_above=exploit_above))


@pytest.mark.parametrize(
    "check",
    [
        surrogates.is_a_botorch_model_over_a_gpytorch_exact_gp,
        surrogates.batch_equals_single,
        surrogates.shared_points_are_points_of_each_problem_s_own,
        surrogates.marginals_agree_with_gpytorch,
        surrogates.a_fantasy_is_a_model_with_the_point_added,
        surrogates.constant_rewards_are_fitted,
    ],
)
def test_contract_of_the_surrogate(check):
    check(BinarySurrogate(threshold=0.5))


@pytest.mark.parametrize("p", [0.01, 0.3, 0.8])
@pytest.mark.parametrize(("fp", "fn"), [(0.0, 0.0), (0.1, 0.1), (0.3, 0.05), (0.0, 0.6)])
def test_one_label_is_bayes_rule(p, fp, fn):
    U = torch.zeros(1, 1, 3, dtype=torch.float64)
    surrogate = BinarySurrogate(base_rate=p, false_positive=fp, false_negative=fn, nugget=1e-12)
    for label in (0.0, 1.0):
        right, wrong = (1 - fn, fp) if label else (fn, 1 - fp)
        expected = p * right / (p * right + (1 - p) * wrong)
        mean, _ = surrogate.fit(U, torch.tensor([[label]], dtype=torch.float64)).marginals(U)
        assert mean.item() == pytest.approx(expected, abs=1e-6)


def test_without_errors_it_is_a_gp_of_the_labels():
    U, y = data()
    binary = BinarySurrogate(
        base_rate=0.2, false_positive=0.0, false_negative=0.0, nugget=0.25, threshold=0.5
    )
    plain = Surrogate(noise=0.04, variance=0.12, centred=False)
    labels = (y >= 0.5).double()
    theirs = plain.fit(U, labels - 0.2).marginals(points())
    ours = binary.fit(U, y).marginals(points())
    torch.testing.assert_close(ours[0], theirs[0] + 0.2, rtol=0, atol=1e-9)
    torch.testing.assert_close(ours[1], theirs[1], rtol=0, atol=1e-9)


def test_right_and_wrong_are_symmetric():
    """Labels, base rate and error rates turned round give one minus the chance."""
    U, y = data()
    one = BinarySurrogate(base_rate=0.3, false_positive=0.2, false_negative=0.05, threshold=0.5)
    other = BinarySurrogate(base_rate=0.7, false_positive=0.05, false_negative=0.2, threshold=0.5)
    mean, variance = one.fit(U, y).marginals(points())
    turned, theirs = other.fit(U, 1 - y).marginals(points())
    torch.testing.assert_close(turned, 1 - mean, rtol=0, atol=1e-9)
    torch.testing.assert_close(theirs, variance, rtol=0, atol=1e-9)


def test_the_estimate_is_unbiased_under_the_verifier_s_errors():
    """Many labels of one rate of success: the mean tends to that rate, whatever the error rates."""
    U = torch.zeros(1, 4000, 2, dtype=torch.float64)
    draw = torch.rand(2, 1, 4000, dtype=torch.float64, generator=generator_for(0, "labels"))
    right = draw[0] < 0.6
    label = torch.where(draw[1] < torch.where(right, 0.3, 0.1), ~right, right).double()
    model = BinarySurrogate(false_positive=0.1, false_negative=0.3).fit(U, label)
    assert model.marginals(U[:, :1])[0].item() == pytest.approx(0.6, abs=0.04)


def test_labels_alone_count_not_the_size_of_the_reward():
    U, y = data()
    surrogate = BinarySurrogate(threshold=0.5)
    again = torch.where(y >= 0.5, y + 1, y / 2)
    assert torch.equal(surrogate.fit(U, y).train_targets, surrogate.fit(U, again).train_targets)


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": MaternKernel()}, {"lengthscale": 1.0}, {"scaling": "absolute"}, {"base_rate": 0.6},
        {"false_positive": 0.3}, {"false_negative": 0.3}, {"nugget": 0.8}, {"threshold": 0.8},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_every_option_of_the_surrogate_acts(change):
    U, y = data()
    given = {"threshold": 0.5}
    before, after = (BinarySurrogate(**{**given, **more}).fit(U, y) for more in ({}, change))
    assert not torch.allclose(before.marginals(points())[0], after.marginals(points())[0], atol=1e-3)


def test_surrogate_s_bad_values():
    for key, value in (
        ("base_rate", 0), ("base_rate", 1), ("false_positive", -0.1), ("false_negative", "x"),
        ("nugget", 0), ("nugget", 1), ("threshold", float("nan")), ("lengthscale", 0),
    ):  # fmt: skip
        with pytest.raises(UserError, match=f"surrogate.{key}: expected"):
            BinarySurrogate(**{key: value})
    with pytest.raises(UserError, match="expected less than 1 together, got 0.5 and 0.5"):
        BinarySurrogate(false_positive=0.5, false_negative=0.5)


def model_and_best(n=10):
    U, y = data(n=n)
    model = BinarySurrogate(threshold=0.5).fit(U, y)
    return model, model.marginals(U)[0].amax(-1, keepdim=True)


def values(model, best, **options):
    return ActiveSearch(model, best, **options)(points()[:, None, None, :]).T


def test_in_the_last_round_it_is_the_chance_of_success():
    model, best = model_and_best()
    mean, _ = model.marginals(points())
    for options in ({"rounds": 0}, {"rounds": 2, "candidates": 5}, {"rounds": 1, "candidates": 5}):
        found = values(model, best, exploit_above=-9, **options)
        torch.testing.assert_close(found, mean - best, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("rounds", "candidates", "later"), [(3, 5, 5), (4, 5, 10), (4, 10, 30), (4, 3, 3)])
def test_what_an_outcome_is_worth_to_the_evaluations_after_the_round(rounds, candidates, later):
    """By simulation of outcomes: ten points were seen, so ``10 // candidates`` rounds were over."""
    model, best = model_and_best()
    X = points(6)
    mean, variance = model.marginals(X)
    outcome = torch.randn(400_000, dtype=torch.float64, generator=generator_for(0, "outcomes"))
    outcome = torch.cat([outcome, -outcome])
    shift = variance / (variance + model.noise).sqrt()
    after = mean.unsqueeze(-1) + shift.unsqueeze(-1) * outcome
    expected = mean - best + later * (after - best.unsqueeze(-1)).clamp_min(0.0).mean(-1)
    function = ActiveSearch(model, best, rounds, candidates, exploit_above=-9)
    torch.testing.assert_close(function(X[:, None, None, :]).T, expected, rtol=0, atol=2e-3)


def test_that_shift_is_how_far_an_outcome_moves_the_mean():
    """Against the model with the outcome added."""
    model, _ = model_and_best()
    X = points(3)
    mean, variance = model.marginals(X[:, None, :])
    outcome = torch.tensor([[0.3], [1.1], [-0.4]], dtype=torch.float64)
    U = torch.cat([model.train_inputs[0], X[:, None, :]], dim=1)
    longer = model.__class__(
        U, torch.cat([model.train_targets, outcome], 1),
        kernel=model.covar_module, mean=model.mean_module, noise=model.noise,
    )  # fmt: skip
    moved = longer.marginals(X[:, None, :])[0] - mean
    torch.testing.assert_close(moved, variance / (variance + model.noise) * (outcome - mean))


def test_coverage_is_the_largest_deviation_until_a_success_is_likely_problem_by_problem():
    model, best = model_and_best()
    level = best.median().item()
    found = values(model, best, exploit_above=level)
    assert 0 < (best < level).sum() < len(best)
    sd = model.marginals(points())[1].sqrt()
    exploiting = values(model, best, exploit_above=-9)
    torch.testing.assert_close(found, torch.where(best < level, sd, exploiting), rtol=0, atol=1e-12)


def test_failures_alone_send_a_round_far_from_all_that_was_seen():
    """More so than noise-adaptive expected improvement and random points do."""
    U = torch.randn(40, 10, 50, dtype=torch.float64, generator=generator_for(0, "failures"))
    y = 0.5 * torch.rand(40, 10, dtype=torch.float64, generator=generator_for(0, "coherence"))
    keys = [str(i) for i in range(40)]

    def nearest(optimiser):
        proposals = optimiser.propose(U, y, 5, seed=0, round=2, keys=keys)
        seen = [torch.cat([U[i], proposal.points]) for i, proposal in enumerate(proposals)]
        cosines = [torch.corrcoef(one).fill_diagonal_(-1)[10:].amax(-1).mean() for one in seen]
        return torch.stack(cosines).mean().item()

    ours = nearest(BayesianOptimiser(BinarySurrogate(), ActiveSearch))
    assert ours < nearest(BayesianOptimiser()) - 0.01 and ours < 0.2


def test_finite_at_extremes():
    U, _ = data()
    for fp, fn, p, nugget in ((0.0, 0.0, 1e-9, 1e-9), (0.5, 0.499, 1 - 1e-9, 0.999), (0.0, 0.0, 0.5, 1e-6)):
        surrogate = BinarySurrogate(base_rate=p, false_positive=fp, false_negative=fn, nugget=nugget)
        for y in (torch.zeros(3, 10), torch.ones(3, 10)):
            model = surrogate.fit(U, y.double())
            best = model.marginals(U)[0].amax(-1, keepdim=True)
            for X in (points(), U[0], 1e6 * points()):
                for level in (-9, 9):
                    function = ActiveSearch(model, best, rounds=1000, exploit_above=level)
                    assert torch.isfinite(function(X[:, None, None, :])).all()


def test_batched_equals_one_at_a_time():
    U, y = data(problems=6, n=10, d=50)
    keys = [str(i) for i in range(6)]
    optimiser = BayesianOptimiser(BinarySurrogate(threshold=0.7), ActiveSearch)
    together = optimiser.propose(U, y, 5, seed=0, round=2, keys=keys)
    assert {proposal.incumbent < 0.2 for proposal in together} == {True, False}, "both kinds of value"
    for i, proposal in enumerate(together):
        [alone] = optimiser.propose(U[i : i + 1], y[i : i + 1], 5, seed=0, round=2, keys=keys[i : i + 1])
        assert torch.equal(alone.points, proposal.points)
        torch.testing.assert_close(alone.acquisition, proposal.acquisition, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "change",
    ["acquisition.rounds=0", "acquisition.candidates=2", "acquisition.exploit_above=0.9",
     "surrogate.base_rate=0.7", "surrogate.false_positive=0.4", "surrogate.false_negative=0.4",
     "surrogate.nugget=0.9", "surrogate.lengthscale=0.5", "surrogate.threshold=0.9", "search.rounds=2"],
)  # fmt: skip
def test_every_option_on_the_command_line_moves_the_proposals(change):
    U, y = data(problems=6, n=10, d=50)
    found = []
    for overrides in (OPTIONS, [*OPTIONS, change]):
        method = build_method(compose_config([*overrides, "reward.verifier_weight=0.6"]))
        proposals = method.optimiser.propose(U, y, 5, seed=0, round=2, keys=[str(i) for i in range(6)])
        found.append(torch.stack([proposal.points for proposal in proposals]))
    assert not torch.equal(*found)


def test_the_budget_and_the_threshold_follow_the_search_and_the_reward():
    config = compose_config([*OPTIONS, "search.rounds=7", "search.candidates=3", "reward.verifier_weight=2"])
    optimiser = build_method(config).optimiser
    assert optimiser.acquisition.keywords["rounds"] == 7
    assert optimiser.acquisition.keywords["candidates"] == 3
    assert optimiser.surrogate.threshold == 2.0


def test_in_botorch_s_optimiser_with_a_botorch_model():
    X = torch.rand(12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = (X - 0.3).norm(dim=-1, keepdim=True).le(0.3).double()
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    function = ActiveSearch(SingleTaskGP(X, y, torch.full_like(y, 0.1)), best_f=0.5)
    point, value = optimize_acqf(function, bounds, q=1, num_restarts=4, raw_samples=32, options={"seed": 0})
    grid = torch.cartesian_prod(*[torch.linspace(0, 1, 41, dtype=torch.float64)] * 2).unsqueeze(1)
    assert value >= function(grid).max() - 1e-6
    assert point.shape == (1, 2)


def test_acquisition_s_bad_values():
    model, best = model_and_best()
    for key, value in (("rounds", -1), ("rounds", 1.5), ("candidates", 0), ("exploit_above", float("inf"))):
        with pytest.raises(UserError, match=f"acquisition.{key}: expected"):
            ActiveSearch(model, best, **{key: value})
