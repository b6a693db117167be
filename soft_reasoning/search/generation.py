"""Where candidate points come from: the discrete set over which an acquisition function is maximised.

``draw`` makes one set of random numbers a round, shared by all problems; ``place`` turns it into points,
(N, d) where every problem has the same and (b, N, d) where they depend on what a problem has seen.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from botorch.generation import gen_candidates_scipy
from torch import Tensor
from torch.quasirandom import SobolEngine

from soft_reasoning.checks import real, whole
from soft_reasoning.search.botorch_acquisition import AsBoTorch
from soft_reasoning.search.marginals import Marginals
from soft_reasoning.search.model import ExactRBF
from soft_reasoning.search.points import Around
from soft_reasoning.types import UserError


class Generation(Protocol):
    count: int
    climbs: bool
    """Whether points follow the gradient of the acquisition function."""

    def draw(self, dim: int, generator: torch.Generator) -> Tensor: ...

    def place(
        self, draws: Tensor, model: ExactRBF, best: Tensor, incumbent: Tensor, acquisition: Any
    ) -> Tensor | Around:
        """``best`` (b,) is the index of the incumbent among the model's own points, ``incumbent`` (b,) the
        value to improve on."""
        ...


class NormalCandidates:
    """``count`` points u ~ N(0, I), as the first round's (paper)."""

    climbs = False

    def __init__(self, count: int = 5000):
        self.count = whole("generation.count", count, least=1)

    def draw(self, dim: int, generator: torch.Generator) -> Tensor:
        return torch.randn(self.count, dim, dtype=torch.float64, generator=generator)

    def place(
        self, draws: Tensor, model: ExactRBF, best: Tensor, incumbent: Tensor, acquisition: Any
    ) -> Tensor:
        return draws


class UniformCandidates(NormalCandidates):
    """u ~ U[0, 1]^d, as the public code draws them: one orthant only (SPEC 15.3)."""

    def draw(self, dim: int, generator: torch.Generator) -> Tensor:
        return torch.rand(self.count, dim, dtype=torch.float64, generator=generator)


class SobolCandidates(NormalCandidates):
    """A scrambled Sobol sequence through the normal quantile function."""

    def draw(self, dim: int, generator: torch.Generator) -> Tensor:
        return sobol_normal(self.count, dim, generator)


def sobol_normal(count: int, dim: int, generator: torch.Generator) -> Tensor:
    """(count, dim) float64: quasi-random standard normal points."""
    if dim > SobolEngine.MAXDIM:
        raise UserError(f"embedding.dim: expected at most {SobolEngine.MAXDIM} dimensions in all for Sobol "
                        f"points, got {dim}; lower it or draw normal ones")  # fmt: skip
    seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
    uniform = SobolEngine(dim, scramble=True, seed=seed).draw(count, dtype=torch.float64)
    inside = uniform.clamp(1e-9, 1 - 1e-9)  # the ends map to infinity
    return math.sqrt(2) * torch.erfinv(2 * inside - 1)


class LocalCandidates(NormalCandidates):
    """Points that share a part rho of the incumbent: u = rho u_best + sqrt(1 - rho^2) xi, xi ~ N(0, I).

    A point drawn so is as typical under N(0, I) as the incumbent, so the search stays on the shell where
    the model was first seen to work. rho runs evenly over [0, ``reach``]; the draws with the smallest
    rho are new points altogether.
    """

    def __init__(self, count: int = 5000, reach: float = 0.9):
        super().__init__(count)
        self.reach = real("generation.reach", reach, least=0.0, below=1.0)

    def place(
        self, draws: Tensor, model: ExactRBF, best: Tensor, incumbent: Tensor, acquisition: Any
    ) -> Around:
        centre = model.U[torch.arange(len(best)), best].unsqueeze(1)  # (b, 1, d)
        return Around(centre, draws, torch.linspace(0.0, self.reach, len(draws), dtype=torch.float64))


class GradientCandidates(NormalCandidates):
    """Normal points, and those to which the ``starts`` best of them climb by L-BFGS-B.

    Each problem climbs alone, within [-bound, bound]^d; far slower than the others. Climbs often end at
    the same maximum, so all points stay candidates.
    """

    climbs = True

    def __init__(self, count: int = 5000, starts: int = 10, bound: float = 3.0):
        super().__init__(count)
        self.starts = whole("generation.starts", starts, least=1)
        self.bound = real("generation.bound", bound, above=0.0)

    def place(
        self, draws: Tensor, model: ExactRBF, best: Tensor, incumbent: Tensor, acquisition: Any
    ) -> Tensor:
        climbed = [
            self._climb(draws, model.select(i), incumbent[i : i + 1], acquisition) for i in range(len(best))
        ]
        return torch.cat([draws.expand(len(best), -1, -1), torch.stack(climbed)], dim=1)

    def _climb(self, draws: Tensor, model: ExactRBF, incumbent: Tensor, acquisition: Any) -> Tensor:
        with torch.no_grad():
            values = acquisition(Marginals(model, draws, incumbent))[0]
        starts = draws[values.topk(min(self.starts, len(draws))).indices].clamp(-self.bound, self.bound)
        with torch.enable_grad():
            climbed, _ = gen_candidates_scipy(
                initial_conditions=starts[:, None, None, :],
                acquisition_function=AsBoTorch(acquisition, model, incumbent),
                lower_bounds=-self.bound,
                upper_bounds=self.bound,
            )
        return climbed.reshape(-1, draws.shape[-1]).detach()


class TrustRegionCandidates(NormalCandidates):
    """Points in a box around the incumbent that grows with success and shrinks with failure (TuRBO).

    The box's half-width is a function of the observations alone: it starts at ``length``, halves after
    each round without an improvement of the best reward and doubles after each with one, between
    ``shortest`` and ``longest``. A point changes each coordinate with probability min(1, 20 / d).
    ``round_size`` is k.
    """

    def __init__(
        self,
        count: int = 5000,
        length: float = 1.6,
        shortest: float = 0.2,
        longest: float = 3.2,
        round_size: int = 5,
    ):
        super().__init__(count)
        self.length = real("generation.length", length, above=0.0)
        self.shortest = real("generation.shortest", shortest, above=0.0)
        self.longest = real("generation.longest", longest, least=self.shortest)
        self.round_size = whole("generation.round_size", round_size, least=1)

    def draw(self, dim: int, generator: torch.Generator) -> Tensor:
        offsets = torch.rand(self.count, dim, dtype=torch.float64, generator=generator) * 2 - 1
        kept = torch.rand(self.count, dim, dtype=torch.float64, generator=generator) < min(1.0, 20 / dim)
        return offsets * kept

    def place(
        self, draws: Tensor, model: ExactRBF, best: Tensor, incumbent: Tensor, acquisition: Any
    ) -> Tensor:
        centre = model.U[torch.arange(len(best)), best].unsqueeze(1)  # (b, 1, d)
        return centre + self.lengths(model.y)[:, None, None] * draws

    def lengths(self, y: Tensor) -> Tensor:
        """(b,): half-widths after the rounds of ``y`` (b, n)."""
        rounds = torch.stack([part.amax(-1) for part in y.split(self.round_size, dim=-1)], dim=-1)
        best = rounds.cummax(-1).values
        length = torch.full_like(y[:, 0], self.length)
        for i in range(1, best.shape[-1]):
            length = torch.where(best[:, i] > best[:, i - 1], 2 * length, length / 2)
            length = length.clamp(self.shortest, self.longest)
        return length
