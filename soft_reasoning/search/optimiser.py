"""Optimisers: from the points and rewards so far to the next round's points.

``propose`` is a pure function of the data and a seed. It handles many problems at once and gives each the
points that it would get alone.
"""

# Parts of torch have no types, and matrices have capital letters.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportConstantRedefinition=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from inspect import signature
from typing import Any, Protocol

import torch
from botorch.acquisition import AcquisitionFunction, AnalyticAcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from soft_reasoning.checks import choice, whole
from soft_reasoning.search.acquisition import (
    NoiseAdaptiveExpectedImprovement,
    one_point,
)
from soft_reasoning.search.batch import Batch, Choice, KrigingBeliever
from soft_reasoning.search.candidates import CandidatePoints, LocalCandidates, pool_size
from soft_reasoning.search.model import FixedNoiseGP
from soft_reasoning.search.prior import Prior, first_points, opened
from soft_reasoning.search.surrogate import Surrogate
from soft_reasoning.types import UserError, generator_for

ADAPTIVE_EI = partial(NoiseAdaptiveExpectedImprovement, delta=0.1)
FIRST_ROUNDS = ("diverse", "random")
INCUMBENTS = ("posterior_mean", "observed")
CHUNK_NUMBERS = 2**22
"""Float64 numbers that the largest tensor of a chunk of problems may hold (32 MB)."""

ROUNDS_KEPT = 8
"""Number of rounds whose candidate points, shared by all problems, are cached (2 MB each)."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """The next round of one problem.

    Random search leaves everything but the points empty.

    Attributes:
        points: (k, d) float64; (k, F) features of the points chosen from a pool.
        mean: (k,) their posterior means before the round.
        sd: (k,) their posterior deviations.
        acquisition: (k,) acquisition values when chosen.
        incumbent: The value to improve on.
        decided: Share of the points that the acquisition function chose. A point does not count if all its
            candidate points had the same value.
        chosen: Indices of the points in the pool; none without a pool.
    """

    points: Tensor
    mean: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    sd: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    acquisition: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    incumbent: float = float("nan")
    decided: float = 0.0
    chosen: tuple[int, ...] = ()


class Optimiser(Protocol):
    """Chooses the points of every round."""

    pool: int | None
    """Points of a question's pool; None if a round's candidate points are drawn anew."""

    def initial(self, k: int, dim: int, generator: torch.Generator) -> Tensor:
        """The first round or, where there is a pool, the pool: (k, dim) float64."""
        ...

    def propose(
        self,
        U: Tensor,
        y: Tensor,
        k: int,
        *,
        seed: int,
        round: int,
        keys: Sequence[str],
        features: Tensor | None = None,
        behaviour: Tensor | None = None,
    ) -> list[Proposal]:
        """The next ``k`` points of each of b problems.

        Args:
            U: Points seen, (b, n, d), or their features. n may be 0 where there is a pool.
            y: Their rewards, (b, n).
            k: Points of a round.
            seed: The run's seed.
            round: Number of the round, from 1.
            keys: The problems' ids.
            features: (b, N, F) of the problems' pools, from which the points are chosen.
            behaviour: (b, N) equal numbers for points of a pool that behave alike, -1 for those that may not
                be chosen.

        Raises:
            ValueError: If shapes do not fit or a value is not finite.
        """
        ...


def checked(U: Tensor, y: Tensor, k: int, keys: Sequence[str] | None = None) -> tuple[Tensor, Tensor]:
    """``U`` and ``y`` in float64 once their shapes and values are found right."""
    whole("k", k, least=1)
    if U.ndim != 3 or y.shape != U.shape[:2] or (keys is not None and len(keys) != len(U)):
        came = f"{tuple(U.shape)}, {tuple(y.shape)}, {None if keys is None else len(keys)}"
        raise ValueError(f"expected U (b, n, d), y (b, n) and b keys, got {came}")
    if not (torch.isfinite(U).all() and torch.isfinite(y).all()):
        raise ValueError("expected finite points and rewards")
    return U.double(), y.double()


def normal(k: int, dim: int, generator: torch.Generator) -> Tensor:
    """Return ``k`` points (k, dim) of N(0, I)."""
    return torch.randn(k, dim, dtype=torch.float64, generator=generator)


class _Deviation(AnalyticAcquisitionFunction):
    """The posterior deviation, for a first round of points that differ most."""

    @one_point
    def forward(self, X: Tensor) -> Tensor:
        _, sd = self._mean_and_sigma(X)
        assert sd is not None  # it is, unless asked not to be computed
        return sd.squeeze(-1)


def in_order(behaviour: Tensor, k: int) -> Tensor:
    """(b, k): the first points of each pool that may be chosen and differ in behaviour."""
    rows = []
    for numbers in behaviour.tolist():
        first: dict[int, int] = {}
        for index, number in enumerate(numbers):
            if number >= 0:
                first.setdefault(number, index)
        rows.append(list(first.values())[:k])
    return torch.tensor(rows)


def rows(features: Tensor, index: Tensor) -> Tensor:
    """(b, k, F): the rows ``index`` (b, k) of ``features`` (b, N, F)."""
    return features[torch.arange(len(index)).unsqueeze(-1), index]


class BayesianOptimiser:
    """Fits a surrogate, scores candidate points by an acquisition function, and chooses a batch.

    Args:
        surrogate: The Gaussian process.
        acquisition: A class of analytic acquisition functions, its own arguments bound (``_partial_: true``
            in YAML). It is called with ``model`` and, where it takes that, ``best_f``.
        candidate_points: The discrete set over which the function is maximised.
        batch: How k points are chosen from it.
        incumbent: The value to improve on: the best ``posterior_mean`` at the points evaluated, or the best
            reward ``observed`` (the paper).
        prior: Knowledge from other questions, or its file. The first round, and a pool, begins with the
            portfolio's points.
        first: The first round from a pool: ``diverse`` points, one after another of the largest posterior
            deviation, or ``random`` ones. After a portfolio's.

    Raises:
        UserError: For a value out of its range, or an acquisition function that does not work.
    """

    def __init__(
        self,
        surrogate: Surrogate | None = None,
        acquisition: Callable[..., AcquisitionFunction] = ADAPTIVE_EI,
        candidate_points: CandidatePoints | None = None,
        batch: Batch | None = None,
        incumbent: str = "posterior_mean",
        prior: Prior | str | None = None,
        first: str = "diverse",
    ):
        self.prior: Prior | None = opened(prior)
        self.surrogate: Surrogate = surrogate or Surrogate()
        self.candidate_points: CandidatePoints = candidate_points or LocalCandidates()
        self.pool: int | None = pool_size(self.candidate_points)
        self.acquisition = acquisition
        self.first: str = choice("first", first, FIRST_ROUNDS)
        self.batch: Batch = batch or KrigingBeliever()
        self.incumbent: str = choice("incumbent", incumbent, INCUMBENTS)
        self._draws = lru_cache(ROUNDS_KEPT)(self._draw)
        self._try_acquisition()

    def initial(self, k: int, dim: int, generator: torch.Generator) -> Tensor:
        k = whole("k", k, least=1)
        whole("candidate_points.count", self.candidate_points.count, least=k)  # a round's points are distinct
        first = first_points(self.prior, 0, k, dim)
        return torch.cat([first, normal(k - len(first), dim, generator)])

    @torch.no_grad()
    def propose(
        self,
        U: Tensor,
        y: Tensor,
        k: int,
        *,
        seed: int,
        round: int,
        keys: Sequence[str],
        features: Tensor | None = None,
        behaviour: Tensor | None = None,
    ) -> list[Proposal]:
        U, y = checked(U, y, k, keys)
        if features is not None and behaviour is not None and not U.shape[1]:
            return self._first_from_pools(k, features, behaviour)
        draws = self._draws(U.shape[-1], seed, round) if features is None else features
        streams = [generator_for(seed, key, "lengths", round) for key in keys]
        lengths = torch.stack([normal(k, U.shape[-1], stream).norm(dim=-1) for stream in streams])
        size = max(1, CHUNK_NUMBERS // (draws.shape[-2] * max(U.shape[2], U.shape[1] + k)))
        if self.surrogate.fits:
            size = 1  # each problem has parameters of its own
        proposals = []
        for start in range(0, len(U), size):
            part = slice(start, start + size)
            gp, incumbent, best = self._model(U[part], y[part])
            placed = features is None
            X = self.candidate_points.place(draws, gp, best, lengths[part]) if placed else draws[part]
            alike = None if behaviour is None else behaviour[part]
            chosen = self.batch.choose(self._acquire, gp, X, incumbent, k, alike)
            proposals += self._described(gp, incumbent, chosen, pooled=not placed)
        return proposals

    def _draw(self, dim: int, seed: int, round: int) -> Tensor:
        return self.candidate_points.draw(dim, generator_for(seed, "candidates", round))

    def _acquire(self, model: Model, best_f: Tensor) -> AcquisitionFunction:
        given: dict[str, Any] = {"best_f": best_f} if self._takes_best else {}
        return self.acquisition(model=model, **given)

    def _try_acquisition(self) -> None:
        """Build the acquisition function once, on one observation."""
        one = torch.zeros(1, 1, 1, dtype=torch.float64)
        named = getattr(self.acquisition, "func", self.acquisition)
        name = getattr(named, "__name__", repr(named))
        if isinstance(self.acquisition, partial):
            for key in self.acquisition.keywords.keys() - signature(named).parameters.keys():
                raise UserError(f"acquisition: {name} takes no {key}; leave {key} out")
        try:
            self._takes_best = "best_f" in signature(self.acquisition).parameters
            with torch.no_grad():
                function = self._acquire(Surrogate().fit(one, one[0]), one[0])
                if not torch.isfinite(function(one + 1)).all():
                    raise ValueError("its values are not finite")
        except UserError:
            raise
        except Exception as error:  # whatever BoTorch raises
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UserError(
                "acquisition: expected an analytic acquisition function of BoTorch with all arguments of its "
                f"own, got {name} ({reason})"
            ) from error

    def _first_from_pools(self, k: int, features: Tensor, behaviour: Tensor) -> list[Proposal]:
        begun = in_order(behaviour, k)
        ahead = 0 if self.prior is None else min(k, len(self.prior.portfolio))
        if self.first == "diverse" and ahead < k:
            begun = begun[:, : max(1, ahead)]
            seen = rows(features, begun)
            gp = self.surrogate.unfitted().fit(seen, torch.zeros(begun.shape, dtype=torch.float64))
            taken = behaviour.gather(-1, begun)
            alike = (behaviour.unsqueeze(-1) == taken.unsqueeze(-2)).any(-1)
            still = behaviour.masked_fill(alike, -1)
            nothing = seen.new_zeros(len(begun))
            rest = KrigingBeliever().choose(
                lambda model, _: _Deviation(model), gp, features, nothing, k - begun.shape[1], still
            )
            begun = torch.cat([begun, rest.index], dim=-1)
        points = rows(features, begun)
        return [Proposal(points[i], chosen=tuple(begun[i].tolist())) for i in range(len(begun))]

    def _model(self, U: Tensor, y: Tensor) -> tuple[FixedNoiseGP, Tensor, Tensor]:
        """The surrogate, the value to improve on (b,), and the index (b,) of the point that has it."""
        gp = self.surrogate.fit(U, y)
        worth = y if self.incumbent == "observed" else gp.marginals(U)[0]
        incumbent, best = worth.max(-1)
        return gp, incumbent, best

    def _described(self, gp: FixedNoiseGP, incumbent: Tensor, chosen: Choice, pooled: bool) -> list[Proposal]:
        """The proposals, with the model's expectation of them."""
        mean, variance = gp.marginals(chosen.points)
        return [
            Proposal(
                chosen.points[i],
                mean[i],
                variance[i].sqrt(),
                chosen.values[i],
                float(incumbent[i]),
                float(chosen.decided[i].double().mean()),
                tuple(chosen.index[i].tolist()) if pooled else (),
            )
            for i in range(len(mean))
        ]
