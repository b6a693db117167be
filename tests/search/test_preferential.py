"""Preferential search: it learns from comparisons alone, and from nothing it is random search."""

from __future__ import annotations

import pytest
import torch

from soft_reasoning.search import PreferentialOptimiser, RandomOptimiser, SearchState
from tests.contracts.surrogate import data

KEYS = ["a", "b"]


def propose(optimiser, U, y):
    return optimiser.propose(SearchState(U, y, 3, seed=0, round=1, keys=KEYS))


def problems(dim=6):
    U, _ = data(problems=2, n=8, d=dim)
    return U, U[..., 0]


def test_only_the_order_of_rewards_counts():
    U, y = problems()
    first, other = propose(PreferentialOptimiser(), U, y), propose(PreferentialOptimiser(), U, y.exp() * 9)
    for a, b in zip(first, other, strict=True):
        assert torch.equal(a.points, b.points) and torch.allclose(a.mean, b.mean)
        assert a.points.shape == (3, 6) and (a.sd > 0).all() and a.decided == 1.0


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


@pytest.mark.parametrize("change", [{"lengthscale": 0.3}, {"count": 8}])
def test_each_option_acts(change):
    U, y = problems()
    changed, usual = propose(PreferentialOptimiser(**change), U, y), propose(PreferentialOptimiser(), U, y)
    assert not torch.equal(changed[0].points, usual[0].points)
