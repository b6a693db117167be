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


@pytest.mark.slow
def test_thompson_samples_are_those_of_the_posterior():
    """Over many rounds the best of two points is chosen about as often as the posterior says."""
    U = torch.tensor([[[0.0], [0.2]]], dtype=torch.float64)
    optimiser = BayesianOptimiser(
        acquisition=PathwiseThompsonSampling, candidate_points=NormalCandidates(2), batch=TopK()
    )
    object.__setattr__(optimiser, "_draws", lambda *_: torch.tensor([[0.1], [3.0]], dtype=torch.float64))
    state = {"U": U, "y": torch.tensor([[0.0, 0.4]]), "k": 1, "keys": ["a"], "round": 1}
    far = sum(float(optimiser.propose(SearchState(seed=s, **state))[0].points) == 3.0 for s in range(200))
    gp = optimiser.surrogate.model(U, torch.tensor([[0.0, 0.4]], dtype=torch.float64))
    with torch.no_grad():
        near, distant = (gp.posterior(torch.tensor([[[x]]], dtype=torch.float64)) for x in (0.1, 3.0))
    gain = (distant.mean - near.mean) / (distant.variance + near.variance).sqrt()  # nearly independent
    assert far / 200 == pytest.approx(float(torch.special.ndtr(gain)), abs=0.12)
