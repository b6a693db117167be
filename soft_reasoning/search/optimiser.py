"""Optimisers: from the points and rewards so far to the next round's points.

``propose`` is a pure function of the data and a seed. It handles many problems at once; each gets the same
points as alone. :class:`RandomOptimiser` is the control.
"""

# Parts of torch have no types, and matrices have capital letters.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportConstantRedefinition=false

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, lru_cache, partial
from inspect import signature
from typing import Any, ClassVar, Protocol

import torch
from botorch.acquisition import AcquisitionFunction, AnalyticAcquisitionFunction
from botorch.models.model import Model
from torch import Tensor
from torch.random import fork_rng

from soft_reasoning.checks import choice, whole
from soft_reasoning.search.acquisition import NoiseAdaptiveExpectedImprovement
from soft_reasoning.search.points import KrigingBeliever, LocalCandidates, NormalCandidates, Proposal, TopK
from soft_reasoning.search.surrogate import Surrogate, first_line
from soft_reasoning.types import UserError, generator_for

ADAPTIVE_EI = partial(NoiseAdaptiveExpectedImprovement, delta=0.1)
INCUMBENTS = ("posterior_mean", "observed")
CHUNK_NUMBERS = 2**22
"""Maximum float64 numbers in the largest tensor of a chunk of problems (32 MB)."""

ROUNDS_KEPT = 8
"""Number of rounds whose candidate points, shared by all problems, are cached (2 MB each)."""


@dataclass(eq=False)
class SearchState:
    """b problems with equal numbers of points, before a round.

    Attributes:
        U: Points evaluated, (b, n, d) float64.
        y: Their rewards, (b, n) float64.
        k: Points of the round.
        seed: The run's seed.
        round: Number of the round, from 1.
        keys: The problems' ids.

    Raises:
        ValueError: If shapes do not fit or a value is not finite.
    """

    U: Tensor
    y: Tensor
    k: int
    _: KW_ONLY
    seed: int
    round: int
    keys: Sequence[str]

    def __post_init__(self) -> None:
        whole("k", self.k, least=1)
        if self.U.ndim != 3 or self.y.shape != self.U.shape[:2] or len(self.keys) != len(self.U):
            shapes = f"{tuple(self.U.shape)}, {tuple(self.y.shape)}, {len(self.keys)}"
            raise ValueError(f"expected U (b, n, d), y (b, n) and b keys, got {shapes}")
        if not (torch.isfinite(self.U).all() and torch.isfinite(self.y).all()):
            raise ValueError("expected finite points and rewards")
        self.U, self.y = self.U.double(), self.y.double()

    @classmethod
    def join(cls, states: Sequence[SearchState]) -> SearchState:
        """Return a state with the problems of all ``states``, whose shapes, k, seed and round are equal."""
        U, y = (torch.cat([getattr(state, name) for state in states]) for name in ("U", "y"))
        return replace(states[0], U=U, y=y, keys=[key for state in states for key in state.keys])


class Optimiser(Protocol):
    """Chooses the points of every round."""

    def initial(self, k: int, dim: int, generator: torch.Generator) -> Tensor:
        """The first round: (k, dim) float64."""
        ...

    def propose(self, state: SearchState) -> list[Proposal]:
        """Return the next ``state.k`` points of each problem."""
        ...


def normal(k: int, dim: int, generator: torch.Generator) -> Tensor:
    """Return ``k`` points (k, dim) of N(0, I)."""
    return torch.randn(k, dim, dtype=torch.float64, generator=generator)


@contextmanager
def _generator_of(seed: int, *stage: object) -> Generator[None]:
    """Seed torch's global generator of the CPU inside, and restore it afterwards."""
    with fork_rng(devices=()):
        # torch.manual_seed would seed GPUs, too.
        torch.default_generator.manual_seed(generator_for(seed, *stage).initial_seed())
        yield


@dataclass(frozen=True, eq=False)
class BayesianOptimiser:
    """Fits a surrogate, scores candidate points by an acquisition function, and chooses a batch.

    Args:
        surrogate: The Gaussian process.
        acquisition: A class of acquisition functions with its arguments bound (``_partial_: true`` in YAML).
            It is called with ``model`` and, if it takes it, ``best_f``. One that is not analytic may draw
            random numbers, as Thompson sampling does; it is called for one problem at a time.
        candidate_points: The discrete set over which the function is maximised.
        batch: How k points are chosen from it.
        incumbent: The value to improve on: the best ``posterior_mean`` at the points evaluated, or the best
            reward ``observed`` (the paper).

    Raises:
        UserError: For a value out of its range; in :meth:`propose` for an acquisition function that does not
            work.
    """

    surrogate: Surrogate = field(default_factory=Surrogate)
    acquisition: Callable[..., AcquisitionFunction] = ADAPTIVE_EI
    candidate_points: NormalCandidates = field(default_factory=LocalCandidates)
    batch: TopK = field(default_factory=KrigingBeliever)
    incumbent: str = "posterior_mean"

    def __post_init__(self) -> None:
        choice("incumbent", self.incumbent, INCUMBENTS)

    def initial(self, k: int, dim: int, generator: torch.Generator) -> Tensor:
        k = whole("k", k, least=1)
        whole("candidate_points.count", self.candidate_points.count, least=k)  # a round's points are distinct
        return normal(k, dim, generator)

    @torch.no_grad()
    def propose(self, state: SearchState) -> list[Proposal]:
        U, y, k = state.U, state.y, state.k
        draws = self._draws(U.shape[-1], state.seed, state.round)
        size = max(1, CHUNK_NUMBERS // (draws.shape[-2] * max(U.shape[2], U.shape[1] + k)))
        if self.surrogate.fits or not self._analytic:
            size = 1  # parameters are fitted to each problem, and draws are each problem's own
        proposals: list[Proposal] = []
        for start in range(0, len(U), size):
            part = slice(start, start + size)
            gp = self.surrogate.model(U[part], y[part])
            values = y[part] if self.incumbent == "observed" else gp.marginals(U[part])[0]
            incumbent, best = values.max(-1)
            streams = [generator_for(state.seed, key, "lengths", state.round) for key in state.keys[part]]
            lengths = torch.stack([normal(k, U.shape[-1], stream).norm(dim=-1) for stream in streams])
            X = self.candidate_points.place(draws, gp, best, lengths)
            ties = generator_for(state.seed, "ties", state.round)
            order = torch.rand(k, X.shape[-2], dtype=torch.float64, generator=ties)
            with _generator_of(state.seed, "acquisition", state.round, *state.keys[part]):
                proposals += self.batch.choose(self._score, gp, X, incumbent, order)
        return proposals

    @cached_property
    def _draws(self) -> Callable[[int, int, int], Tensor]:
        def draw(dim: int, seed: int, round: int) -> Tensor:
            return self.candidate_points.draw(dim, generator_for(seed, "candidates", round))

        return lru_cache(ROUNDS_KEPT)(draw)

    @property
    def _class(self) -> Any:
        """The class of the acquisition function, without the arguments that are bound."""
        return getattr(self.acquisition, "func", self.acquisition)

    @property
    def _analytic(self) -> bool:
        return isinstance(self._class, type) and issubclass(self._class, AnalyticAcquisitionFunction)

    def _score(self, model: Model, best_f: Tensor, X: Tensor) -> Tensor:
        """Return values (N, b) of the acquisition function at ``X`` (N x b or 1 x 1 x d).

        ``best_f`` is (b, 1).
        """
        try:
            best: dict[str, Any] = {"best_f": best_f} if "best_f" in signature(self._class).parameters else {}
            values = self.acquisition(model=model, **best)(X)
            shape, expected = tuple(values.shape), (len(X), len(best_f))
            if shape not in (expected, X.shape[:2]):
                raise ValueError(f"expected values (points, problems) = {expected}, got {shape}")
            if not torch.isfinite(values).all():
                raise ValueError("its values are not finite")
        except UserError:
            raise
        except Exception as error:  # BoTorch may raise any error
            raise UserError(
                "acquisition: expected an acquisition function of BoTorch with all its arguments bound, got "
                f"{getattr(self._class, '__name__', repr(self._class))} ({first_line(error)})"
            ) from error
        return values.expand(expected)


@dataclass(frozen=True)
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
