"""Random search: the control of the Bayesian optimiser."""

from __future__ import annotations

import torch
from torch import Tensor

from soft_reasoning.checks import whole
from soft_reasoning.search.batch import Proposal
from soft_reasoning.search.optimiser import SearchState, normal
from soft_reasoning.search.prior import Prior, first_points, load_prior
from soft_reasoning.types import generator_for


class RandomOptimiser:
    """The control: every round is drawn from N(0, I), after the points of a ``prior``'s portfolio.

    ``independent``: no point depends on another, and no point is shared by all problems.
    """

    independent: bool

    def __init__(self, prior: Prior | str | None = None):
        self.prior: Prior | None = load_prior(prior)
        self.independent = self.prior is None

    def initial(self, k: int, dim: int, generator: torch.Generator) -> Tensor:
        return self._next(0, whole("k", k, least=1), dim, generator)

    def propose(self, state: SearchState) -> list[Proposal]:
        _, seen, dim = state.U.shape
        streams = [generator_for(state.seed, key, "random", state.round) for key in state.keys]
        return [Proposal(self._next(seen, state.k, dim, stream)) for stream in streams]

    def _next(self, seen: int, k: int, dim: int, generator: torch.Generator) -> Tensor:
        first = first_points(self.prior, seen, k, dim)
        return torch.cat([first, normal(k - len(first), dim, generator)]) if len(first) < k else first
