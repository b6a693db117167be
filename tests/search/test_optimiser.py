"""Optimisers: purity, batching, candidate generation, batch rules, the released rule, bad values."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.acquisition import analytic

from soft_reasoning.search import BayesianOptimiser, RandomOptimiser, SobolOptimiser
from soft_reasoning.search import optimiser as module
from soft_reasoning.search.acquisition import EI, UCB, AdaptiveEI, LogEI, Thompson
from soft_reasoning.search.batch import Fantasy, FarthestFirst, QLogEI, TopK, first_best
from soft_reasoning.search.botorch_acquisition import BoTorch
from soft_reasoning.search.generation import (
    GradientCandidates,
    LocalCandidates,
    NormalCandidates,
    SobolCandidates,
    TrustRegionCandidates,
    UniformCandidates,
)
from soft_reasoning.search.literal import ReleasedEI
from soft_reasoning.search.marginals import Marginals
from soft_reasoning.search.surrogate import MAPRBF, FixedRBF
from soft_reasoning.types import UserError, generator_for
from tests.contracts.acquisition import data

KEYS = [f"problem {i}" for i in range(6)]
ALL = {
    "default": BayesianOptimiser(),
    "fantasy": BayesianOptimiser(batch=Fantasy()),
    "uniform": BayesianOptimiser(generation=UniformCandidates()),
    "sobol candidates": BayesianOptimiser(generation=SobolCandidates()),
    "local": BayesianOptimiser(generation=LocalCandidates(), batch=Fantasy()),
    "farthest first": BayesianOptimiser(generation=LocalCandidates(), batch=FarthestFirst()),
    "exploring": BayesianOptimiser(generation=LocalCandidates(), batch=Fantasy(), contrast=1e3),
    "trust region": BayesianOptimiser(generation=TrustRegionCandidates(), batch=Fantasy()),
    "gradient": BayesianOptimiser(generation=GradientCandidates(500), batch=Fantasy()),
    "q_log_ei": BayesianOptimiser(generation=NormalCandidates(500), batch=QLogEI(32, 32)),
    "exploring thompson": BayesianOptimiser(
        acquisition=Thompson(64), generation=NormalCandidates(500), contrast=0.83
    ),
    "thompson": BayesianOptimiser(acquisition=Thompson(64), generation=NormalCandidates(500)),
    "map": BayesianOptimiser(MAPRBF()),
    "random": RandomOptimiser(),
    "sobol": SobolOptimiser(),
}


def propose(optimiser, part=slice(None), *, seed=0, round=1, k=5, problems=6):
    U, y = data(problems=problems, n=15, d=50)
    return optimiser.propose(U[part], y[part], k, seed=seed, round=round, keys=KEYS[:problems][part])


@pytest.mark.parametrize("name", ALL)
def test_proposals(name):
    proposals = propose(ALL[name])
    assert len(proposals) == 6
    for proposal in proposals:
        assert proposal.points.shape == (5, 50) and proposal.points.dtype == torch.float64
        assert torch.isfinite(proposal.points).all()
        assert torch.pdist(proposal.points).min() > 0
        assert all(math.isfinite(value) for value in proposal.diagnostics.values())
        if name not in ("random", "sobol"):
            assert proposal.mean.shape == proposal.sd.shape == proposal.acquisition.shape == (5,)
            assert (proposal.sd > 0).all() and math.isfinite(proposal.incumbent)


def alone_and_together(optimiser, monkeypatch):
    """The six problems in chunks, one by one, and in one chunk."""
    together = propose(optimiser)
    alone = [propose(optimiser, slice(i, i + 1))[0] for i in range(6)]
    monkeypatch.setattr(module, "CHUNK_NUMBERS", 2**24)
    return together, alone, propose(optimiser)


@pytest.mark.parametrize("name", ALL)
def test_a_problem_alone_gets_the_points_it_gets_in_any_batch(name, monkeypatch):
    for proposals in zip(*alone_and_together(ALL[name], monkeypatch), strict=True):
        assert all(torch.equal(proposal.points, proposals[0].points) for proposal in proposals)


@pytest.fixture
def one_thread():
    """Several threads round sums of products differently for each b."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


@pytest.mark.parametrize("name", ALL)
def test_on_one_thread_a_trace_is_that_of_any_batch_to_the_last_bit(name, one_thread, monkeypatch):
    for proposals in zip(*alone_and_together(ALL[name], monkeypatch), strict=True):
        first, *others = [
            (p.mean.tolist(), p.sd.tolist(), p.acquisition.tolist(), str(p.incumbent), p.diagnostics)
            for p in proposals
        ]
        assert all(other == first for other in others)


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


@pytest.mark.parametrize("name", ["random", "sobol", "thompson"])
def test_problems_that_saw_the_same_draw_from_streams_of_their_own(name):
    U, y = (part.expand(2, *part.shape[1:]) for part in data(problems=1, n=15, d=50))
    one, other = ALL[name].propose(U, y, 5, seed=0, round=1, keys=KEYS[:2])
    assert not torch.equal(one.points, other.points)


def test_points_are_the_best_of_the_candidates_drawn():
    U, y = data(problems=2, n=15, d=50)
    optimiser = BayesianOptimiser(acquisition=EI())
    proposal = optimiser.propose(U, y, 5, seed=3, round=2, keys=KEYS[:2])[1]
    X = torch.randn(5000, 50, dtype=torch.float64, generator=generator_for(3, "candidates", 2))
    model = optimiser.surrogate.fit(U, y)
    values = EI()(Marginals(model, X, model.marginals(U)[0].amax(-1)))[1]
    assert torch.equal(proposal.points, X[values.topk(5).indices])
    torch.testing.assert_close(proposal.acquisition, values.topk(5).values, rtol=0, atol=1e-12)


def test_released_rule():
    """SPEC 15.3, 4, 5, 10, 11, written out: uniform candidates, the printed EI of f* - mu with the variance
    as sigma, lengthscale 1, zero mean, best observed reward, the five largest."""
    optimiser = BayesianOptimiser(
        FixedRBF(1.0, "absolute", 1e-16, "zero"), ReleasedEI(), UniformCandidates(2000), TopK(), "observed"
    )
    U, y = data(problems=3, n=10, d=4)  # few dimensions, so that l = 1 still correlates
    proposals = optimiser.propose(U, y, 5, seed=7, round=1, keys=KEYS[:3])
    X = torch.rand(2000, 4, dtype=torch.float64, generator=generator_for(7, "candidates", 1))
    normal = torch.distributions.Normal(0.0, 1.0)
    for i, proposal in enumerate(proposals):
        kernel = torch.exp(-0.5 * torch.cdist(torch.cat([U[i], X]), torch.cat([U[i], X])).square())
        inverse = torch.linalg.inv(kernel[:10, :10] + 1e-16 * torch.eye(10).double())
        cross = kernel[10:, :10]
        mu = cross @ inverse @ y[i]
        s = 1 - torch.einsum("ni,ij,nj->n", cross, inverse, cross)
        gain = y[i].max() - mu
        z = gain / s
        value = gain.clamp(min=0) + s * normal.log_prob(z).exp() - gain.abs() * normal.cdf(z)
        best = value.topk(5)
        assert torch.equal(proposal.points, X[best.indices])
        torch.testing.assert_close(proposal.acquisition, best.values, rtol=0, atol=1e-7)


def test_ties_go_to_the_lowest_index():
    values = torch.tensor([[0.5, 1.0, 1.0 + 1e-14, 1.0], [-2.0, -1.0 - 1e-14, -1.0, -3.0]]).double()
    assert first_best(values).tolist() == [1, 1]
    # lengthscale 1 at d = 200: every candidate is as good as every other, so the first ones are taken
    U, y = data(problems=1, n=15, d=200)
    flat = BayesianOptimiser(FixedRBF(1.0, "absolute", 1e-16, "zero"), EI())
    X = torch.randn(5000, 200, dtype=torch.float64, generator=generator_for(0, "candidates", 1))
    assert torch.equal(flat.propose(U, y, 5, seed=0, round=1, keys=KEYS[:1])[0].points, X[:5])


def test_fantasy_spreads_a_batch():
    for optimiser in (BayesianOptimiser(acquisition=EI()), BayesianOptimiser(generation=LocalCandidates())):
        top = propose(optimiser)
        spread = propose(
            BayesianOptimiser(optimiser.surrogate, optimiser.acquisition, optimiser.generation, Fantasy())
        )
        assert torch.equal(top[0].points[0], spread[0].points[0])
        distance = [sum(torch.pdist(p.points).mean().item() for p in some) for some in (top, spread)]
        assert distance[1] > distance[0]


def test_local_candidates_keep_the_norm_and_come_close():
    U, y = data(problems=2, n=15, d=50)
    model = FixedRBF().fit(U, y)
    draws = torch.randn(4000, 50, dtype=torch.float64, generator=generator_for(0, "x"))
    X = LocalCandidates(4000, 0.9).place(draws, model, torch.tensor([3, 7]), y.amax(-1), EI()).written()
    assert torch.equal(X[:, 0], draws[:1].expand(2, -1))
    for i, best in enumerate((3, 7)):
        cosine = torch.cosine_similarity(X[i, -500:], U[i, best].expand(500, -1))
        assert cosine.mean().item() == pytest.approx(0.85, abs=0.05)
        assert X[i].norm(dim=-1).mean().item() == pytest.approx(math.sqrt(50), rel=0.1)


def test_farthest_first_is_what_it_says():
    U, y = data(problems=2, n=15, d=50)
    model = FixedRBF().fit(U, y)
    draws = torch.randn(300, 50, dtype=torch.float64, generator=generator_for(0, "x"))
    for X in (draws, LocalCandidates(300).place(draws, model, torch.tensor([3, 7]), y.amax(-1), EI())):
        index, values, _ = FarthestFirst().choose(EI(), Marginals(model, X, y.amax(-1)), 4)
        for i in range(2):
            points = X if X is draws else X[i]
            seen = U[i]
            for j, value in zip(index[i].tolist(), values[i], strict=True):
                nearest = torch.cdist(points, seen).amin(-1)
                assert j == int(nearest.argmax())
                torch.testing.assert_close(value, nearest[j])
                seen = torch.cat([seen, points[j : j + 1]])


def test_explores_until_the_incumbent_stands_out():
    """The first problem's rewards are all alike; in the second a success is confirmed by its neighbours."""
    U, _ = data(problems=2, n=15, d=50)
    y = torch.full((2, 15), 0.9, dtype=torch.float64)
    U[1, 5:8] = 0.9 * U[1, 4] + math.sqrt(1 - 0.81) * U[1, 5:8]
    y[1, 4:8] = 2.0
    parts = dict(surrogate=FixedRBF(2.0, noise=0.1, variance=0.25), generation=LocalCandidates())
    rules = [
        BayesianOptimiser(batch=Fantasy(), contrast=0.45, **parts),
        BayesianOptimiser(parts["surrogate"], batch=FarthestFirst()),
        BayesianOptimiser(batch=Fantasy(), **parts),
    ]
    mixed, far, near = (rule.propose(U, y, 5, seed=0, round=1, keys=KEYS[:2]) for rule in rules)
    assert torch.equal(mixed[0].points, far[0].points)
    assert torch.equal(mixed[1].points, near[1].points)
    assert [proposal.diagnostics["explores"] for proposal in mixed] == [1.0, 0.0]


def test_trust_region_grows_with_success_and_shrinks_with_failure():
    rule = TrustRegionCandidates(length=1.6, shortest=0.2, longest=3.2, round_size=2)
    up = torch.tensor([[0.0, 1.0, 2.0, 0.0, 3.0, 0.0]])
    down = torch.tensor([[5.0, 1.0, 2.0, 0.0, 3.0, 0.0]])
    assert rule.lengths(up.double()).item() == 3.2
    assert rule.lengths(down.double()).item() == pytest.approx(0.4)


@pytest.mark.parametrize(("dim", "share"), [(10, 1.0), (20, 1.0), (50, 0.4)])
def test_trust_region_changes_some_twenty_coordinates(dim, share):
    draws = TrustRegionCandidates(5000).draw(dim, generator_for(0, "x"))
    assert (draws != 0).double().mean().item() == pytest.approx(share, abs=0.01)


def test_gradient_beats_the_candidates_it_starts_from():
    discrete = propose(BayesianOptimiser(acquisition=EI()), slice(0, 2))
    climbed = propose(BayesianOptimiser(acquisition=EI(), generation=GradientCandidates()), slice(0, 2))
    for a, b in zip(discrete, climbed, strict=True):
        assert b.acquisition[0] > a.acquisition[0] + 1e-3


@pytest.mark.parametrize("incumbent", ["observed", "posterior_mean"])
def test_gradient_climbs_what_the_batch_rule_sees(incumbent):
    """Whichever the incumbent, and BoTorch's functions as ours; a batch has no point twice, or nearly."""
    ours, theirs = (
        propose(BayesianOptimiser(acquisition=a, generation=GradientCandidates(), batch=Fantasy(),
                                  incumbent=incumbent), slice(0, 1))[0]
        for a in (LogEI(), BoTorch(analytic.LogExpectedImprovement))
    )  # fmt: skip
    assert ours.acquisition[0].item() == pytest.approx(theirs.acquisition[0].item(), abs=1e-3)
    assert torch.pdist(ours.points).min() > 0.5
    U, y = data(problems=6, n=15, d=50)
    model = FixedRBF().fit(U[:1], y[:1])
    worth = y[0] if incumbent == "observed" else model.marginals(U[:1])[0][0]
    assert ours.incumbent == pytest.approx(worth.max().item(), abs=1e-12)
    best = torch.tensor([ours.incumbent], dtype=torch.float64)
    point = ours.points[:1].requires_grad_()
    [slope] = torch.autograd.grad(LogEI()(Marginals(model, point, best)).sum(), point)
    inside = ours.points[0].abs() < 3 - 1e-6
    assert slope[0, inside].abs().max() < 1e-2


def test_diagnostics_tell_a_dead_acquisition_function_and_what_a_round_should_bring():
    """Values that are all alike have no spread; expected improvement is of rewards, with their noise."""
    U, y = data(problems=1, n=15, d=50)
    dead = BayesianOptimiser(acquisition=UCB(0.0), surrogate=FixedRBF(1e-3))
    [proposal] = dead.propose(U, y, 5, seed=0, round=1, keys=["a"])
    assert proposal.diagnostics["acquisition_spread"] == 0.0
    [proposal] = BayesianOptimiser(surrogate=FixedRBF(noise=0.2)).propose(
        U, y, 5, seed=0, round=1, keys=["a"]
    )
    noise = torch.randn(5, 200_000, dtype=torch.float64, generator=generator_for(0))
    rewards = proposal.mean[:, None] + (proposal.sd[:, None].square() + 0.2).sqrt() * noise
    gain = (rewards - proposal.incumbent).clamp_min(0.0).mean().item()
    assert proposal.diagnostics["expected_improvement"] == pytest.approx(gain, abs=3e-3)
    assert proposal.diagnostics["acquisition_spread"] > 0.0


def test_optimiser_learns_a_half_space():
    """Clean rewards, 30 problems: later rounds succeed more often than random ones."""
    U = torch.randn(30, 15, 50, dtype=torch.float64, generator=generator_for(0, "half-space"))
    keys = [str(i) for i in range(30)]
    y = (U[..., 0] > 0.84).double()
    proposals = BayesianOptimiser(acquisition=EI()).propose(U, y, 5, seed=0, round=1, keys=keys)
    rate = torch.stack([p.points[:, 0] > 0.84 for p in proposals]).double().mean()
    assert rate > 0.35


def test_posterior_mean_is_the_surrogate_s():
    U, y = data(n=15, d=50)
    for optimiser in (BayesianOptimiser(), RandomOptimiser()):
        expected = FixedRBF().fit(U, y).marginals(U)[0]
        torch.testing.assert_close(optimiser.posterior_mean(U, y), expected, rtol=0, atol=1e-12)


def test_bad_values():
    U, y = data(n=15, d=50)
    optimiser = BayesianOptimiser()
    with pytest.raises(ValueError, match="finite"):
        optimiser.propose(U, y.masked_fill(y > 0.9, float("nan")), 5, seed=0, round=1, keys=KEYS[:3])
    with pytest.raises(ValueError, match="b keys"):
        optimiser.propose(U, y, 5, seed=0, round=1, keys=KEYS[:2])
    with pytest.raises(UserError, match="search.candidates"):
        optimiser.propose(U, y, 0, seed=0, round=1, keys=KEYS[:3])
    with pytest.raises(UserError, match="search.candidates"):
        optimiser.initial(0, 50, generator_for(0))
    with pytest.raises(UserError, match="posterior_mean, observed"):
        BayesianOptimiser(incumbent="best")
    with pytest.raises(UserError, match="count"):
        NormalCandidates(0)
    with pytest.raises(UserError, match="contrast"):
        BayesianOptimiser(contrast=-0.1)
    with pytest.raises(UserError, match="reach"):
        LocalCandidates(reach=1.0)
    with pytest.raises(UserError, match="embedding.dim: expected at most 21201"):
        SobolOptimiser().initial(5, 30_000, generator_for(0))
    with pytest.raises(UserError, match="generation.count: expected a whole number of at least 5"):
        BayesianOptimiser(generation=NormalCandidates(3)).initial(5, 50, generator_for(0))
    with pytest.raises(
        UserError, match="generation=gradient: expected an acquisition function with a gradient"
    ):
        BayesianOptimiser(acquisition=Thompson(), generation=GradientCandidates())
    assert isinstance(BayesianOptimiser().acquisition, AdaptiveEI)
