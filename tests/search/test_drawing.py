"""Acquisition functions that draw random numbers: as seeded as everything else."""

import pytest
import torch
from botorch.acquisition import AcquisitionFunction

from soft_reasoning.search.optimiser import BayesianOptimiser, SearchState


class Drawing(AcquisitionFunction):
    """Scores that are drawn when it is called."""

    def forward(self, X):
        return torch.rand(X.shape[:-2], dtype=X.dtype)


def proposed(optimiser, seed=0, round=1):
    U = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(2, 3, 2)
    state = SearchState(U, U.sum(-1), k=2, keys=["a", "b"], seed=seed, round=round)
    return torch.stack([proposal.points for proposal in optimiser.propose(state)])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("round", [1, 2])
def test_draws_follow_the_seed_and_leave_torch_s_generator_alone(seed, round):
    optimiser = BayesianOptimiser(acquisition=Drawing)
    torch.manual_seed(1)
    before, first = torch.get_rng_state(), proposed(optimiser, seed, round)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(proposed(optimiser, seed, round), first)
    assert not torch.equal(proposed(optimiser, seed + 9, round), first)
