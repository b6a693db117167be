"""Preferential search: it learns from comparisons alone, and from nothing it is random search."""

from __future__ import annotations

import pytest
import torch

from soft_reasoning.search import PreferentialOptimiser, RandomOptimiser
from soft_reasoning.search.candidates import PoolCandidates
from tests.contracts.surrogate import data

KEYS = ["a", "b"]


def propose(optimiser, U, y, **others):
    return optimiser.propose(U, y, 3, seed=0, round=1, keys=KEYS, **others)


def problems(dim=6):
    U, _ = data(problems=2, n=8, d=dim)
    return U, U[..., 0]


def test_only_the_order_of_rewards_counts():
    U, y = problems()
    first, other = propose(PreferentialOptimiser(), U, y), propose(PreferentialOptimiser(), U, y.exp() * 9)
    for a, b in zip(first, other, strict=True):
        assert torch.equal(a.points, b.points) and torch.allclose(a.mean, b.mean)
        assert a.points.shape == (3, 6) and (a.sd > 0).all() and a.decided == 1.0


def test_a_problem_alone_gets_the_same_points():
    U, y = problems()
    alone = PreferentialOptimiser().propose(U[1:], y[1:], 3, seed=0, round=1, keys=["b"])[0]
    assert torch.allclose(alone.points, propose(PreferentialOptimiser(), U, y)[1].points)


def test_it_goes_where_comparisons_were_won():
    U, y = problems()
    better = torch.stack([p.points[..., 0].mean() for p in propose(PreferentialOptimiser(), U, y)])
    worse = torch.stack([p.points[..., 0].mean() for p in propose(PreferentialOptimiser(), U, -y)])
    assert (better > 0.5).all() and (worse < -0.5).all()


def test_without_a_winner_it_is_random_search():
    U, y = problems()
    expected = propose(RandomOptimiser(), U, torch.zeros_like(y))
    for a, b in zip(propose(PreferentialOptimiser(), U, torch.ones_like(y)), expected, strict=True):
        assert torch.equal(a.points, b.points)


def test_a_pools_points_are_chosen_once_for_a_behaviour():
    U, y = problems()
    pool = torch.cat([U, U + 0.1, torch.randn(2, 20, 6, dtype=torch.float64)], dim=1)
    behaviour = torch.arange(pool.shape[1]).repeat(2, 1)
    behaviour[:, :8] = -1  # tried before
    behaviour[:, 9] = 8
    optimiser = PreferentialOptimiser(candidate_points=PoolCandidates(pool.shape[1]))
    for i, proposal in enumerate(propose(optimiser, U, y, features=pool, behaviour=behaviour)):
        assert torch.equal(pool[i, list(proposal.chosen)], proposal.points)
        numbers = behaviour[i, list(proposal.chosen)]
        assert len(set(numbers.tolist())) == 3 and (numbers >= 0).all()


@pytest.mark.parametrize("change", [{"lengthscale": 0.3}, {"count": 8}])
def test_each_option_acts(change):
    U, y = problems()
    changed, usual = propose(PreferentialOptimiser(**change), U, y), propose(PreferentialOptimiser(), U, y)
    assert not torch.equal(changed[0].points, usual[0].points)
