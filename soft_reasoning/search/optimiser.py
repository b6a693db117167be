"""Optimisers: what was seen in, the next round's points out.

``propose`` is a pure function of the data and a seed. It serves many problems at once and gives each the
points that it would get alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from soft_reasoning.checks import choice, real, whole
from soft_reasoning.search.acquisition import Acquisition, AdaptiveEI, expected_improvement
from soft_reasoning.search.batch import Batch, FarthestFirst, TopK
from soft_reasoning.search.generation import Generation, NormalCandidates, sobol_normal
from soft_reasoning.search.marginals import Marginals
from soft_reasoning.search.surrogate import FixedRBF, Surrogate
from soft_reasoning.types import UserError, generator_for

INCUMBENTS = ("posterior_mean", "observed")
CHUNK_NUMBERS = 2**20
"""Float64 numbers that the largest tensor of a chunk of problems may hold (8 MB)."""

ROUNDS_KEPT = 8
"""Candidate points of a round serve all problems; of so many rounds they are kept (2 MB each)."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """The next round of one problem.

    ``points`` (k, d) float64; ``mean`` and ``sd`` (k,) their posterior before the round; ``acquisition``
    (k,) their values when chosen (of an exploring round, distances); ``incumbent`` the value to improve on.
    ``diagnostics`` holds plain floats, among them ``acquisition_spread``, the largest minus the smallest
    value among all candidate points, and ``expected_improvement``, how far the round's rewards, noise
    included, are expected to rise above the incumbent, on average. Random search leaves all but the points
    empty.
    """

    points: Tensor
    mean: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    sd: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    acquisition: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    incumbent: float = float("nan")
    diagnostics: dict[str, float] = field(default_factory=dict)


class Optimiser(Protocol):
    def initial(self, k: int, dim: int, generator: torch.Generator) -> Tensor:
        """(k, dim) float64: the first round."""
        ...

    def propose(
        self, U: Tensor, y: Tensor, k: int, *, seed: int, round: int, keys: Sequence[str]
    ) -> list[Proposal]:
        """A proposal of ``k`` points for each of b problems, from ``U`` (b, n, d) and rewards ``y`` (b, n).

        ``keys`` are the problems' ids. Raises ValueError for values that are not finite.
        """
        ...

    def posterior_mean(self, U: Tensor, y: Tensor) -> Tensor:
        """(b, n): the surrogate's posterior mean at the points themselves."""
        ...


def _checked(U: Tensor, y: Tensor, k: int, keys: Sequence[str] | None = None) -> tuple[Tensor, Tensor]:
    """``U`` and ``y`` in float64 once their shapes and values are found right."""
    whole("search.candidates", k, least=1)
    if U.ndim != 3 or y.shape != U.shape[:2] or (keys is not None and len(keys) != len(U)):
        came = f"{tuple(U.shape)}, {tuple(y.shape)}, {None if keys is None else len(keys)}"
        raise ValueError(f"expected U (b, n, d), y (b, n) and b keys, got {came}")
    if not (torch.isfinite(U).all() and torch.isfinite(y).all()):
        raise ValueError("expected finite points and rewards")
    return U.double(), y.double()


def _spread(values: Tensor) -> Tensor:
    """(b,) standard deviations of the rows, one by one: a batched sum rounds differently for each b."""
    return torch.stack([row.std() for row in values])


class BayesianOptimiser:
    """Fit a surrogate, score candidate points by an acquisition function, choose a batch of them.

    ``incumbent`` is the value to improve on: the best posterior mean at the points evaluated, or the
    best reward ``observed`` (SPEC 14).

    While the posterior means at the points seen differ by less than ``contrast`` (units of the reward),
    nothing stands out that is worth staying near, and a round's points are, of ``generation.count`` normal
    ones, the farthest from all seen.
    """

    def __init__(
        self,
        surrogate: Surrogate | None = None,
        acquisition: Acquisition | None = None,
        generation: Generation | None = None,
        batch: Batch | None = None,
        incumbent: str = "posterior_mean",
        contrast: float = 0.0,
    ):
        self.surrogate = surrogate or FixedRBF()
        self.acquisition = acquisition or AdaptiveEI()
        self.generation = generation or NormalCandidates()
        self.batch = batch or TopK()
        if self.generation.climbs and self.acquisition.redraw:
            raise UserError("generation=gradient: expected an acquisition function with a gradient, got one "
                            "that draws at random; use another generation")  # fmt: skip
        self.incumbent = choice("search.incumbent", incumbent, INCUMBENTS)
        self.contrast = real("search.contrast", contrast, least=0.0)
        self._draws = lru_cache(ROUNDS_KEPT)(self._draw)

    def _draw(self, explores: bool, dim: int, seed: int, round: int) -> Tensor:
        generation = NormalCandidates(self.generation.count) if explores else self.generation
        return generation.draw(dim, generator_for(seed, "candidates", round))

    def initial(self, k: int, dim: int, generator: torch.Generator) -> Tensor:
        k = whole("search.candidates", k, least=1)
        whole("generation.count", self.generation.count, least=k)  # a round's points are distinct
        return torch.randn(k, dim, dtype=torch.float64, generator=generator)

    @torch.no_grad()
    def propose(
        self, U: Tensor, y: Tensor, k: int, *, seed: int, round: int, keys: Sequence[str]
    ) -> list[Proposal]:
        U, y = _checked(U, y, k, keys)
        size = max(1, CHUNK_NUMBERS // (self.generation.count * (U.shape[1] + k)))
        proposals = []
        for start in range(0, len(U), size):
            part = slice(start, start + size)
            proposals += self._chunk(U[part], y[part], k, seed, round, keys[part])
        return proposals

    def posterior_mean(self, U: Tensor, y: Tensor) -> Tensor:
        U, y = _checked(U, y, 1)
        return self.surrogate.fit(U, y).marginals(U)[0]

    def _chunk(
        self, U: Tensor, y: Tensor, k: int, seed: int, round: int, keys: Sequence[str]
    ) -> list[Proposal]:
        model = self.surrogate.fit(U, y)
        seen, _ = model.marginals(U)
        explores = (seen.amax(-1) - seen.amin(-1) < self.contrast).tolist()
        if len(set(explores)) > 1:
            halves = ([i for i, this in enumerate(explores) if this == which] for which in (False, True))
            parts = [
                (rows, self._chunk(U[rows], y[rows], k, seed, round, [keys[i] for i in rows]))
                for rows in halves
            ]
            by_row = {i: proposal for rows, part in parts for i, proposal in zip(rows, part, strict=True)}
            return [by_row[i] for i in range(len(U))]
        worth = y if self.incumbent == "observed" else seen
        incumbent, best = worth.max(-1)
        X = self._draws(explores[0], U.shape[-1], seed, round)
        batch: Batch = FarthestFirst()
        if not explores[0]:
            X = self.generation.place(X, model, best, incumbent, self.acquisition)
            batch = self.batch
        streams = [generator_for(seed, key, "acquisition", round) for key in keys]
        before = Marginals(model, X, incumbent, streams, generator_for(seed, "acquisition", round))
        mean, sd = before.mean, before.sd
        index, value, pool = batch.choose(self.acquisition, before, k)
        points, chosen_mean, chosen_sd = before.at(index), mean.gather(-1, index), sd.gather(-1, index)
        centre = U[torch.arange(len(U)), best].unsqueeze(1)
        columns = {
            "gamma": model.information_gain,
            "mean_spread": _spread(mean),
            "sd_average": sd.mean(-1),
            "sd_spread": _spread(sd),
            "acquisition_spread": pool.amax(-1) - pool.amin(-1),
            "expected_improvement": expected_improvement(
                chosen_mean, (chosen_sd.square() + model.noise).sqrt(), incumbent.unsqueeze(-1)
            ).mean(-1),
            "incumbent_distance": (points - centre).square().sum(-1).sqrt().mean(-1),
            "lengthscale": model.lengthscale.mean(-1),
            "explores": torch.tensor(explores),
        }
        return [
            Proposal(
                points[i],
                chosen_mean[i],
                chosen_sd[i],
                value[i],
                float(incumbent[i]),
                {name: float(column[i]) for name, column in columns.items()},
            )
            for i in range(len(U))
        ]


class RandomOptimiser:
    """The control: every round is drawn from N(0, I), whatever was seen.

    Its ``surrogate`` serves final-answer rules alone. ``independent``: no point depends on another.
    """

    independent = True

    def __init__(self, surrogate: Surrogate | None = None):
        self.surrogate = surrogate or FixedRBF()

    def initial(self, k: int, dim: int, generator: torch.Generator) -> Tensor:
        return self._draw(whole("search.candidates", k, least=1), dim, generator)

    def propose(
        self, U: Tensor, y: Tensor, k: int, *, seed: int, round: int, keys: Sequence[str]
    ) -> list[Proposal]:
        U, y = _checked(U, y, k, keys)
        streams = [generator_for(seed, key, "random", round) for key in keys]
        return [Proposal(self._draw(k, U.shape[-1], stream)) for stream in streams]

    def posterior_mean(self, U: Tensor, y: Tensor) -> Tensor:
        U, y = _checked(U, y, 1)
        return self.surrogate.fit(U, y).marginals(U)[0]

    def _draw(self, k: int, dim: int, generator: torch.Generator) -> Tensor:
        return torch.randn(k, dim, dtype=torch.float64, generator=generator)


class SobolOptimiser(RandomOptimiser):
    """The control with quasi-random normal points."""

    independent = False

    def _draw(self, k: int, dim: int, generator: torch.Generator) -> Tensor:
        return sobol_normal(k, dim, generator)
