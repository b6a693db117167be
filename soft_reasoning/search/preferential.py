"""Preferential Bayesian optimisation: learns which of two points is better, not how good each point is."""

# Parts of torch and BoTorch have no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from typing import cast

import torch
from botorch.acquisition.preference import qExpectedUtilityOfBestOption
from botorch.models.pairwise_gp import PairwiseGP
from botorch.optim import optimize_acqf_discrete
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.normal import SobolQMCNormalSampler
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from soft_reasoning.checks import real, whole
from soft_reasoning.search.batch import Proposal
from soft_reasoning.search.candidates import NormalCandidates
from soft_reasoning.search.optimiser import SearchState, first_distinct, normal
from soft_reasoning.search.prior import Prior
from soft_reasoning.search.random import RandomOptimiser
from soft_reasoning.types import generator_for

SAMPLES = 128
"""Draws of the utility over which its maximum is averaged."""


class PreferentialOptimiser(RandomOptimiser):
    """Fits a ``PairwiseGP`` to all pairs of unequal rewards; a round has the best expected winner.

    The likelihood is that of a noisy comparison (Chu and Ghahramani 2005), and k points are chosen one by one
    by qEUBO (Astudillo et al. 2023). It suits rewards that only rank. The first points are random, and later
    points as long as all rewards are equal.

    Args:
        lengthscale: Lengthscale of the RBF kernel, in units of sqrt(d).
        count: Number of candidate points N(0, I) of a round, without a pool.
        prior: As in :class:`RandomOptimiser`.
        candidate_points: A pool, or None; other kinds are not used.
    """

    def __init__(
        self,
        lengthscale: float = 3.0,
        count: int = 256,
        prior: Prior | str | None = None,
        candidate_points: NormalCandidates | None = None,
    ):
        super().__init__(prior, candidate_points)
        self.lengthscale: float = real("lengthscale", lengthscale, above=0.0)
        self.count: int = whole("count", count, least=1)
        self.independent = False

    def propose(self, state: SearchState) -> list[Proposal]:
        proposals = super().propose(state)
        whole("search.optimiser.count", self.count, least=state.k)
        for i, (key, U, y) in enumerate(zip(state.keys, state.U, state.y, strict=True)):
            pairs = (y.unsqueeze(-1) > y).nonzero()  # (winner, loser)
            if not len(pairs):
                continue
            generator = generator_for(state.seed, key, "preferential", state.round)
            index = None
            if state.features is None or state.behaviour is None:
                choices = normal(self.count, U.shape[-1], generator)
            else:
                index = first_distinct(state.behaviour[i : i + 1], state.behaviour.shape[-1])[0]
                choices = state.features[i, index].double()
            proposals[i] = self._best(U, pairs, choices, state.k, index)
        return proposals

    def _best(self, U: Tensor, pairs: Tensor, choices: Tensor, k: int, index: Tensor | None) -> Proposal:
        """The ``k`` of ``choices`` (N, d) with the best expected winner, at ``index`` (N,) of the pool."""
        kernel = ScaleKernel(RBFKernel())
        kernel.base_kernel.lengthscale = torch.tensor(self.lengthscale * math.sqrt(U.shape[-1]))
        model = PairwiseGP(U, pairs, covar_module=kernel.double()).eval()
        sampler = SobolQMCNormalSampler(torch.Size([SAMPLES]), seed=0)  # the same draws for every problem
        with torch.no_grad():
            points, values = optimize_acqf_discrete(
                qExpectedUtilityOfBestOption(model, sampler=sampler), q=k, choices=choices
            )
            expected, seen = (cast(GPyTorchPosterior, model.posterior(X)) for X in (points, U))
        chosen: tuple[int, ...] = ()
        if index is not None:
            chosen = tuple(int(index[(choices == point).all(-1)][0]) for point in points)
        mean, sd = expected.mean.squeeze(-1), expected.variance.sqrt().squeeze(-1)
        return Proposal(points, mean, sd, values, float(seen.mean.max()), 1.0, chosen)
