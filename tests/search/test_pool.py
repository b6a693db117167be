"""Choosing from a pool: diverse first rounds, no behaviour twice, one problem as in a batch."""

import pytest
import torch

from soft_reasoning.search import (
    BayesianOptimiser,
    RandomOptimiser,
    SearchState,
    Surrogate,
)
from soft_reasoning.search.candidates import PoolCandidates
from soft_reasoning.space.pool import scaled
from soft_reasoning.types import generator_for

B, N, K = 4, 30, 5
KEYS = [str(i) for i in range(B)]


def optimiser(**more):
    return BayesianOptimiser(Surrogate(lengthscale=1.4), candidate_points=PoolCandidates(N), **more)


@pytest.fixture
def features():
    """Five clusters of six points for each problem."""
    stream = generator_for(0, "pool")
    centres = torch.randn(B, 5, 8, dtype=torch.float64, generator=stream)
    rows = centres.repeat(1, 6, 1) + 0.01 * torch.randn(B, N, 8, dtype=torch.float64, generator=stream)
    return torch.stack([scaled(row) for row in rows])


def choose(optimiser, features, seen=None, y=None, behaviour=None, part=slice(None), k=K):
    index = torch.empty(B, 0, dtype=torch.long) if seen is None else seen
    U = torch.stack([row[i] for row, i in zip(features, index, strict=True)])
    behaviour = torch.arange(N).expand(B, N) if behaviour is None else behaviour
    y = torch.zeros(B, 0) if y is None else y
    proposals = optimiser.propose(
        SearchState(
            U[part],
            y[part],
            k,
            seed=0,
            round=index.shape[1] // K,
            keys=KEYS[part],
            features=features[part],
            behaviour=behaviour[part],
        )
    )
    return [p.chosen for p in proposals], proposals


def test_a_diverse_first_round_visits_every_cluster(features):
    chosen, proposals = choose(optimiser(), features)
    assert all({i % 5 for i in row} == set(range(5)) for row in chosen)
    assert proposals[0].points.shape == (K, N)


def test_what_was_right_is_where_the_next_round_goes(features):
    seen = torch.arange(5).expand(B, 5)
    y = torch.zeros(B, 5, dtype=torch.float64)
    y[:, 2] = 1.0
    behaviour = torch.arange(N).masked_fill(torch.arange(N) < 5, -1).expand(B, N)
    chosen, proposals = choose(optimiser(), features, seen, y, behaviour, k=2)
    assert all(i % 5 == 2 for row in chosen for i in row[:1])
    assert all(len(p.mean) == 2 and p.mean[0] > y[0].mean() for p in proposals)


@pytest.mark.parametrize("kind", [BayesianOptimiser, RandomOptimiser])
def test_no_behaviour_is_chosen_twice_and_none_that_is_closed(features, kind):
    method = kind(candidate_points=PoolCandidates(N))
    behaviour = (torch.arange(N) % 7).masked_fill(torch.arange(N) % 7 == 3, -1).expand(B, N)
    seen = torch.tensor([[3, 10]]).expand(B, 2)
    for more in ({}, {"seen": seen, "y": torch.tensor([[0.0, 1.0]]).double().expand(B, 2)}):
        chosen, proposals = choose(method, features, behaviour=behaviour, **more)
        for row, proposal, points in zip(chosen, proposals, features, strict=True):
            assert torch.equal(proposal.points, points[list(row)])
            numbers = [int(behaviour[0, i]) for i in row]
            assert len(set(numbers)) == K and -1 not in numbers


@pytest.mark.parametrize("surrogate", [Surrogate(), Surrogate(fit="map")])
def test_a_problem_gets_alone_what_it_gets_in_a_batch(features, surrogate):
    method = BayesianOptimiser(surrogate, candidate_points=PoolCandidates(N))
    seen = torch.arange(5).expand(B, 5)
    y = torch.rand(B, 5, dtype=torch.float64, generator=generator_for(0, "y"))
    together, _ = choose(method, features, seen, y)
    alone = [choose(method, features, seen, y, part=slice(i, i + 1))[0][0] for i in range(B)]
    assert together == alone
    first, _ = choose(method, features)
    assert first == [choose(method, features, part=slice(i, i + 1))[0][0] for i in range(B)]
