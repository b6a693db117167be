"""Random search: the control of the Bayesian optimiser."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from soft_reasoning.checks import whole
from soft_reasoning.search.batch import Proposal
from soft_reasoning.search.optimiser import SearchState, normal
from soft_reasoning.types import generator_for


class RandomOptimiser:
    """The control: every round is drawn from N(0, I).

    ``independent``: no point depends on another, and no point is shared by all problems.
    """

    independent: ClassVar[bool] = True

    def initial(self, k: int, dim: int, generator: torch.Generator) -> Tensor:
        return normal(whole("k", k, least=1), dim, generator)

    def propose(self, state: SearchState) -> list[Proposal]:
        dim = state.U.shape[-1]
        streams = [generator_for(state.seed, key, "random", state.round) for key in state.keys]
        return [Proposal(normal(state.k, dim, stream)) for stream in streams]
