"""Acquisition functions that draw random numbers: as seeded as all else, and for each problem alone."""

import pytest
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling

from soft_reasoning.search.optimiser import BayesianOptimiser, SearchState
from soft_reasoning.search.points import KrigingBeliever, LocalCandidates, NormalCandidates, TopK
from soft_reasoning.types import generator_for


class Drawing(AcquisitionFunction):
    """Scores that are drawn when it is called."""

    def forward(self, X):
        return torch.rand(X.shape[:-2], dtype=X.dtype)


DRAWING = [Drawing, PathwiseThompsonSampling]


def proposed(optimiser, seed=0, round=1, keys=("a", "b")):
    """For each of the problems ``keys`` its next points; its data depend on its key only."""
    U = torch.stack([torch.randn(3, 2, dtype=torch.float64, generator=generator_for(0, key)) for key in keys])
    state = SearchState(U, U.sum(-1), k=2, keys=list(keys), seed=seed, round=round)
    return {key: p.points for key, p in zip(keys, optimiser.propose(state), strict=True)}


def equal(some, others):
    return all(torch.equal(some[key], others[key]) for key in some)


@pytest.mark.parametrize("acquisition", DRAWING)
def test_draws_follow_the_seed_and_leave_torch_s_generator_alone(acquisition):
    optimiser = BayesianOptimiser(acquisition=acquisition)
    torch.manual_seed(1)
    before, first = torch.get_rng_state(), proposed(optimiser)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert equal(first, proposed(optimiser))
    assert not equal(first, proposed(optimiser, seed=9)) and not equal(first, proposed(optimiser, round=2))


def test_a_proposal_leaves_the_generators_of_gpus_alone(monkeypatch):
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    proposed(BayesianOptimiser())
    assert not seeded


@pytest.mark.slow
@pytest.mark.parametrize("batch", [KrigingBeliever, TopK])
@pytest.mark.parametrize("points", [LocalCandidates, NormalCandidates])
@pytest.mark.parametrize("acquisition", DRAWING)
def test_a_problem_s_draws_do_not_depend_on_the_others(acquisition, points, batch):
    def optimiser():
        return BayesianOptimiser(acquisition=acquisition, candidate_points=points(40), batch=batch())

    one, keys = optimiser(), "abcde"
    alone = {key: proposed(one, keys=(key,))[key] for key in keys}
    assert len({tuple(points.flatten().tolist()) for points in alone.values()}) > 2
    for together in ("abcde", "edcba", "ba", "de", "bcd"):
        assert equal(proposed(optimiser(), keys=together), alone)
