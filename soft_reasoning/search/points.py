"""Points of a round: the candidate points, and the choice of k among them by an acquisition function.

``draw`` draws random numbers for each round, which all problems share. ``place`` turns them into candidate
points, (N, d) if all problems share them and (b, N, d) if they depend on a problem's data. A batch chooses k
of them.
"""

# Parts of torch have no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from botorch.models.model import Model
from torch import Tensor

from soft_reasoning.checks import real, whole
from soft_reasoning.search.surrogate import CheapMarginalsGP

TIE = 1e-10
"""Values closer than this, relative to the largest, are ties, which the seed breaks. So rounding, which
differs between batch sizes, does not affect the choice."""
Score: TypeAlias = Callable[[Model, Tensor, Tensor], Tensor]
"""The acquisition function: a model of b problems, the values (b, 1) to improve on and points (N x b or 1 x 1
x d) -> values (N, b)."""
_EMPTY = torch.empty(0, dtype=torch.float64)


@dataclass(frozen=True)
class NormalCandidates:
    """``count`` points u ~ N(0, I), as in the first round (paper, "Maximising Expected Improvement")."""

    count: int = 5000

    def __post_init__(self) -> None:
        whole("count", self.count, least=1)

    def draw(self, dim: int, generator: torch.Generator) -> Tensor:
        """Random numbers (N, dim) float64 of a round."""
        return torch.randn(self.count, dim, dtype=torch.float64, generator=generator)

    def place(self, draws: Tensor, gp: CheapMarginalsGP, best: Tensor, lengths: Tensor) -> Tensor:
        """Points, (N, d), (b, N, d), or (b, k, M, d) with M separate points for each of k picks.

        Args:
            draws: Random numbers from :meth:`draw`.
            gp: The model of b problems.
            best: (b,) index of the incumbent among the points observed.
            lengths: (b, k) lengths of points of N(0, I), one for each pick of a round.
        """
        return draws


@dataclass(frozen=True)
class UniformCandidates(NormalCandidates):
    """u ~ U[0, 1]^d as in the public code: only one orthant."""

    def draw(self, dim: int, generator: torch.Generator) -> Tensor:
        return torch.rand(self.count, dim, dtype=torch.float64, generator=generator)


@dataclass(frozen=True)
class LocalCandidates(NormalCandidates):
    """Points between new random points and the incumbent, with the lengths of N(0, I).

    A point's direction is that of rho c + sqrt(1 - rho^2) xi, where c is the incumbent scaled to length
    sqrt(d), xi ~ N(0, I), and rho runs evenly over [0, ``reach``]. Each of a round's k picks has separate
    candidate points, all of the same length, which is that of a random point of N(0, I). So the acquisition
    function chooses directions and cannot drift to longer vectors, which would be a larger sigma. The last
    ``fresh`` picks choose only among new points (rho = 0), which keeps coverage if no point was correct yet.
    An incumbent of exactly 0 has no direction, so all points are new.
    """

    count: int = 2000
    reach: float = 0.95
    fresh: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("fresh", self.fresh, least=0)
        real("reach", self.reach, least=0.0, below=1.0)

    def place(self, draws: Tensor, gp: CheapMarginalsGP, best: Tensor, lengths: Tensor) -> Tensor:
        U, d = gp.train_inputs[0], draws.shape[-1]
        centre: Tensor = U[torch.arange(len(best)), best, None, None]  # (b, 1, 1, d)
        length = centre.norm(dim=-1, keepdim=True).clamp_min(1e-300)
        centre = centre * (math.sqrt(d) / length)
        k = lengths.shape[1]
        M = len(draws) // k
        local = torch.arange(k) < k - self.fresh
        rho = local[:, None, None] * torch.linspace(0.0, self.reach, M, dtype=torch.float64).unsqueeze(-1)
        X = rho * centre + (1 - rho.square()).sqrt() * draws[: k * M].reshape(k, M, d)  # (b, k, M, d)
        return X * (lengths[:, :, None, None] / X.norm(dim=-1, keepdim=True))


@dataclass(frozen=True, eq=False)
class Proposal:
    """The next round of a problem. Random search leaves everything but the points empty.

    Attributes:
        points: (k, d) float64, distinct.
        mean: (k,) their posterior means before the round.
        sd: (k,) their posterior standard deviations.
        acquisition: (k,) acquisition values when chosen.
        incumbent: The value to improve on.
        decided: Share of the points that the acquisition function chose: one candidate point was the best.
        tied: Share of the points that were drawn among several of the best, but not all, candidate points.
    """

    points: Tensor
    mean: Tensor = _EMPTY
    sd: Tensor = _EMPTY
    acquisition: Tensor = _EMPTY
    incumbent: float = float("nan")
    decided: float = 0.0
    tied: float = 0.0

    def summary(self) -> dict[str, object]:
        """Return the proposal's entry in a trace: the surrogate's expectations of the round.

        Numbers have six digits, since a float's last digits depend on the batch and the number of threads.
        """
        columns = {"mean": self.mean, "sd": self.sd, "acquisition": self.acquisition}
        rounded = {name: [float(f"{float(x):.6g}") for x in column] for name, column in columns.items()}
        return {**rounded, "decided": self.decided, "tied": self.tied}


def are_best(values: Tensor) -> Tensor:
    """Whether each of the values (b, N) is within :data:`TIE` of its row's largest."""
    top = values.amax(-1, keepdim=True)
    return values >= top - TIE * top.abs()


@dataclass(frozen=True)
class TopK:
    """Chooses the points with the largest acquisition values."""

    fantasies: ClassVar[bool] = False

    def choose(
        self, score: Score, gp: CheapMarginalsGP, X: Tensor, incumbent: Tensor, order: Tensor
    ) -> list[Proposal]:
        """Choose k points for each of b problems.

        Args:
            score: The acquisition function.
            gp: The model of the problems.
            X: Candidate points: (N, d) if all problems share them, (b, N, d), or (b, k, M, d) with separate
                points for each pick.
            incumbent: (b,) values to improve on.
            order: (k, N) random numbers, by which the picks of a round break ties.
        """
        model, best, rows = gp, incumbent, torch.arange(len(incumbent))
        per_pick = X.ndim == 4
        taken, values = torch.zeros(len(rows), X.shape[-2], dtype=torch.bool), torch.empty(0)
        picks: list[tuple[Tensor, ...]] = []
        k = len(order)
        for i in range(k):
            choices = X[:, i] if per_pick else X  # (N, d) or (b, N, d)
            if i == 0 or per_pick or self.fantasies:
                points = choices.transpose(0, 1) if choices.ndim == 3 else choices.unsqueeze(1)
                values = score(model, best.unsqueeze(-1), points.unsqueeze(-2)).mT  # (b, N)
            best_ones = are_best(values if per_pick else values.masked_fill(taken, -torch.inf))
            index = torch.where(best_ones, order[i], -1.0).argmax(-1)
            taken[rows, index] = True
            point = choices[rows, index] if choices.ndim == 3 else choices[index]
            top = values[rows, index]
            alone, all_equal = best_ones.sum(-1) == 1, top - values.amin(-1) <= TIE * top.abs()
            picks.append((point, top, alone & ~all_equal, ~alone & ~all_equal))
            if self.fantasies and i + 1 < k:
                model, mean = model.fantasise(point)
                best = torch.maximum(best, mean)
        points, values, decided, tied = (torch.stack(parts, 1) for parts in zip(*picks, strict=True))
        mean, variance = gp.marginals(points)
        return [
            Proposal(
                points[i],
                mean[i],
                variance[i].sqrt(),
                values[i],
                float(incumbent[i]),
                float(decided[i].double().mean()),
                float(tied[i].double().mean()),
            )
            for i in range(len(rows))
        ]


@dataclass(frozen=True)
class KrigingBeliever(TopK):
    """Chooses points one by one, each added with its posterior mean as reward (Ginsbourger et al., 2010)."""

    fantasies: ClassVar[bool] = True
