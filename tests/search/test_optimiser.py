"""Optimisers: purity, batching, candidate points, batch rules, the published rules, bad values."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from botorch.acquisition import (
    AnalyticAcquisitionFunction,
    ExpectedImprovement,
    NoisyExpectedImprovement,
    UpperConfidenceBound,
)
from botorch.utils.transforms import t_batch_mode_transform

from soft_reasoning.search import BayesianOptimiser, RandomOptimiser, SearchState, Surrogate
from soft_reasoning.search import optimiser as module
from soft_reasoning.search.points import (
    KrigingBeliever,
    LocalCandidates,
    NormalCandidates,
    TopK,
    UniformCandidates,
    are_best,
)
from soft_reasoning.types import UserError, generator_for
from tests.contracts.surrogate import data

pytestmark = pytest.mark.filterwarnings("ignore:ExpectedImprovement has known")
KEYS = [f"problem {i}" for i in range(6)]
FLAT = Surrogate(lengthscale=1.0, scaling="absolute", noise=1e-16, variance=1.0, centred=False)
ALL = {
    "default": BayesianOptimiser(),
    "normal top_k": BayesianOptimiser(candidate_points=NormalCandidates(), batch=TopK()),
    "normal believer": BayesianOptimiser(candidate_points=NormalCandidates(1000)),
    "uniform": BayesianOptimiser(candidate_points=UniformCandidates()),
    "ucb": BayesianOptimiser(acquisition=partial(UpperConfidenceBound, beta=2.0)),
    "observed": BayesianOptimiser(incumbent="observed"),
    "map": BayesianOptimiser(Surrogate(fit="map")),
    "random": RandomOptimiser(),
}


def propose(optimiser, part=slice(None), *, seed=0, round=1, k=5, problems=6):
    U, y = data(problems=problems, n=15, d=50)
    return optimiser.propose(
        SearchState(U[part], y[part], k, seed=seed, round=round, keys=KEYS[:problems][part])
    )


@pytest.mark.parametrize("name", ALL)
def test_proposals(name):
    proposals = propose(ALL[name])
    assert len(proposals) == 6
    for proposal in proposals:
        assert proposal.points.shape == (5, 50) and proposal.points.dtype == torch.float64
        assert torch.isfinite(proposal.points).all()
        assert torch.pdist(proposal.points).min() > 0
        if name == "random":
            assert proposal.decided == 0.0
        else:
            assert proposal.mean.shape == proposal.sd.shape == proposal.acquisition.shape == (5,)
            assert (proposal.sd > 0).all() and math.isfinite(proposal.incumbent)
            assert proposal.decided == 1.0


@pytest.mark.parametrize("name", ALL)
def test_a_problem_alone_gets_what_it_gets_in_any_batch(name, monkeypatch):
    """The six problems in one chunk, in several, and one by one."""
    together = propose(ALL[name])
    alone = [propose(ALL[name], slice(i, i + 1))[0] for i in range(6)]
    monkeypatch.setattr(module, "CHUNK_NUMBERS", 2**18)
    for first, *others in zip(together, alone, propose(ALL[name]), strict=True):
        for other in others:
            assert torch.equal(other.points, first.points)
            for part in ("mean", "sd", "acquisition"):
                torch.testing.assert_close(getattr(other, part), getattr(first, part), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_pure_function_of_data_and_seed(name):
    first = propose(ALL[name])
    torch.manual_seed(99)
    torch.randn(10)
    again = propose(ALL[name])
    assert all(torch.equal(a.points, b.points) for a, b in zip(first, again, strict=True))
    for change in ({"seed": 1}, {"round": 2}):
        other = propose(ALL[name], **change)
        assert not any(torch.equal(a.points, b.points) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("d", [1, 50])
@pytest.mark.parametrize("y", [[0.0] * 4, [1e15, -1e15, 0.0, 1e-300]])
def test_points_that_are_exactly_zero_and_huge_rewards_give_finite_proposals(d, y):
    optimiser = BayesianOptimiser(candidate_points=NormalCandidates(), batch=KrigingBeliever())
    U, y = torch.zeros(1, 4, d, dtype=torch.float64), torch.tensor([y], dtype=torch.float64)
    [proposal] = optimiser.propose(SearchState(U, y, 3, seed=0, round=1, keys=KEYS[:1]))
    for name in ("points", "acquisition", "mean", "sd"):
        assert getattr(proposal, name).isfinite().all(), name


@pytest.mark.parametrize("d", [1, 50])
@pytest.mark.parametrize("tiny", [0.0, 1e-320])
@pytest.mark.parametrize("incumbent", ["observed", "posterior_mean"])
def test_an_incumbent_of_exactly_zero_has_no_direction_so_all_points_are_new(d, tiny, incumbent):
    """Beside it a problem with another incumbent, which gets what it gets alone."""
    U, y = data(problems=2, n=6, d=d)
    U[0, 2], y[0, 2] = tiny, y.max() + 9.0
    optimiser = BayesianOptimiser(candidate_points=LocalCandidates(100), incumbent=incumbent)
    zero, usual = optimiser.propose(SearchState(U, y, 3, seed=0, round=1, keys=KEYS[:2]))
    for name in ("points", "acquisition", "mean", "sd"):
        assert getattr(zero, name).isfinite().all(), name
    assert len({tuple(point) for point in zero.points.tolist()}) == 3
    [alone] = optimiser.propose(SearchState(U[1:], y[1:], 3, seed=0, round=1, keys=KEYS[1:2]))
    assert torch.equal(alone.points, usual.points)


class Distance(AnalyticAcquisitionFunction):
    """A user's function: the mean squared distance from the origin."""

    @t_batch_mode_transform(expected_q=1)
    def forward(self, X):
        return X.square().mean((-1, -2)).expand(self._mean_and_sigma(X)[0].shape[:-1])


def test_an_acquisition_function_of_the_user_s_own():
    optimiser = BayesianOptimiser(acquisition=Distance, candidate_points=NormalCandidates(300), batch=TopK())
    X = torch.randn(300, 50, dtype=torch.float64, generator=generator_for(0, "candidates", 1))
    assert torch.equal(propose(optimiser)[2].points, X[X.norm(dim=-1).topk(5).indices])


class Steps(ExpectedImprovement):
    """Takes few values, so many points are the best."""

    def forward(self, X):
        return (X[..., 0, 0] > 0).double()


@pytest.mark.parametrize("batch", [TopK(), KrigingBeliever()])
@pytest.mark.parametrize("candidates", [NormalCandidates(500), LocalCandidates(500)])
def test_the_seed_breaks_ties_which_are_counted_apart(batch, candidates):
    """Not the index; a problem alone gets the points that it gets in a batch."""
    U, y = data(problems=6, n=15, d=50)
    optimiser = BayesianOptimiser(Surrogate(), Steps, candidates, batch)
    state = SearchState(U, y, 5, seed=0, round=1, keys=KEYS)
    proposals, other = optimiser.propose(state), optimiser.propose(replace(state, seed=1))
    draws = candidates.draw(50, generator_for(0, "candidates", 1))
    for i, proposal in enumerate(proposals):
        assert (proposal.points[:, 0] > 0).all() and torch.pdist(proposal.points).min() > 0
        assert proposal.decided == 0.0 and proposal.tied == 1.0
        [alone] = optimiser.propose(
            SearchState(U[i : i + 1], y[i : i + 1], 5, seed=0, round=1, keys=[KEYS[i]])
        )
        assert torch.equal(alone.points, proposal.points)
        assert not torch.equal(other[i].points, proposal.points)
        if type(candidates) is NormalCandidates:
            assert not torch.equal(proposal.points, draws[draws[:, 0] > 0][:5])


def test_ties():
    values = torch.tensor([[0.5, 1.0, 1.0 + 1e-14, 1.0], [-2.0, -1.0 - 1e-14, -1.0, -3.0]]).double()
    assert are_best(values).tolist() == [[False, True, True, True], [False, True, True, False]]
    # lengthscale 1 at d = 200: every candidate is as good as every other
    U, y = data(problems=1, n=15, d=200)
    flat = BayesianOptimiser(FLAT, ExpectedImprovement, NormalCandidates(), TopK())
    X = torch.randn(5000, 200, dtype=torch.float64, generator=generator_for(0, "candidates", 1))
    [proposal] = flat.propose(SearchState(U, y, 5, seed=0, round=1, keys=KEYS[:1]))
    assert not torch.equal(proposal.points, X[:5]) and proposal.decided == proposal.tied == 0.0


def placed(candidates, problems=2, k=5, d=50):
    U, y = data(problems=problems, n=15, d=d)
    gp, best = Surrogate().model(U, y), torch.tensor([3, 7])
    draws = candidates.draw(d, generator_for(0, "x"))
    lengths = torch.linspace(6.0, 8.0, problems * k, dtype=torch.float64).reshape(problems, k)
    return candidates.place(draws, gp, best, lengths), U, best


def test_local_candidates_have_the_lengths_given_and_come_close():
    X, U, best = placed(LocalCandidates(4000, 0.9))
    assert X.shape == (2, 5, 800, 50)
    lengths = torch.linspace(6.0, 8.0, 10, dtype=torch.float64).reshape(2, 5)
    torch.testing.assert_close(X.norm(dim=-1), lengths.unsqueeze(-1).expand(-1, -1, 800))
    for i, index in enumerate(best):
        cosines = torch.cosine_similarity(X[i], U[i, index].expand(800, -1), dim=-1)
        assert cosines[4].mean().abs() < 0.05, "the last pick's points are fresh"
        cosine = cosines[:4].mean(0)
        assert cosine[-100:].mean().item() == pytest.approx(0.85, abs=0.05)
        assert cosine[:100].mean().item() == pytest.approx(0.05, abs=0.05)


@pytest.mark.parametrize("d", [1, 10, 50])
def test_the_default_s_points_are_as_long_as_those_of_the_first_round(d):
    """Whatever the acquisition function prefers: N(0, I) has that length in every round."""
    U, y = data(problems=100, n=15, d=d)
    keys = [str(i) for i in range(100)]
    expected = math.sqrt(2) * math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))
    proposals = BayesianOptimiser().propose(SearchState(U, y, 5, seed=0, round=1, keys=keys))
    lengths = torch.stack([p.points.norm(dim=-1) for p in proposals])
    assert lengths.mean().item() == pytest.approx(expected, rel=0.1 if d == 1 else 0.03)
    assert lengths.var().item() == pytest.approx(d - expected**2, rel=0.2)
    free = BayesianOptimiser(candidate_points=NormalCandidates(), batch=TopK())
    drifting = free.propose(SearchState(U, y, 5, seed=0, round=1, keys=keys))
    drifted = torch.stack([proposal.points.norm(dim=-1) for proposal in drifting])
    assert drifted.mean() > 1.1 * expected  # what the rule is for


def test_optimiser_learns_a_half_space():
    """Clean rewards, 30 problems: later rounds succeed more often than random ones."""
    U = torch.randn(30, 15, 50, dtype=torch.float64, generator=generator_for(0, "half-space"))
    y = (U[..., 0] > 0.84).double()
    state = SearchState(U, y, 5, seed=0, round=1, keys=[str(i) for i in range(30)])
    proposals = BayesianOptimiser().propose(state)
    rate = torch.stack([p.points[:, 0] > 0.84 for p in proposals]).double().mean()
    assert rate > 0.4


@pytest.mark.parametrize(
    "acquisition",
    [
        UpperConfidenceBound,  # without its beta
        NoisyExpectedImprovement,
        partial(UpperConfidenceBound, beta=-1.0),
        None,
    ],
)
def test_an_acquisition_function_that_does_not_work_is_refused_in_the_first_round(acquisition):
    with pytest.raises(UserError, match="acquisition: expected an acquisition function of BoTorch") as error:
        propose(BayesianOptimiser(acquisition=acquisition))
    assert "\n" not in str(error.value)


def test_bad_values():
    U, y = data(n=15, d=50)
    optimiser = BayesianOptimiser()
    with pytest.raises(ValueError, match="finite"):
        SearchState(U, y.masked_fill(y > 0.9, float("nan")), 5, seed=0, round=1, keys=KEYS[:3])
    with pytest.raises(ValueError, match="b keys"):
        SearchState(U, y, 5, seed=0, round=1, keys=KEYS[:2])
    with pytest.raises(UserError, match="k: expected"):
        optimiser.initial(0, 50, generator_for(0))
    with pytest.raises(UserError, match="posterior_mean, observed"):
        BayesianOptimiser(incumbent="best")
    with pytest.raises(UserError, match="reach"):
        LocalCandidates(reach=1.0)
    with pytest.raises(UserError, match="count: expected a whole number of at least 5"):
        BayesianOptimiser(candidate_points=NormalCandidates(3)).initial(5, 50, generator_for(0))
