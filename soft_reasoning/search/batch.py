"""Choosing the k points of a round from the candidate points."""

# Parts of torch have no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from soft_reasoning.search.model import CheapMarginalsGP

TIE = 1e-10
"""Values closer than this, relative to the largest, are ties, which the lowest index wins. So rounding, which
differs between batch sizes, does not affect the choice."""

Acquire = Callable[[Model, Tensor], AcquisitionFunction]
"""Builds the acquisition function from a model and the values (b, 1) to improve on."""
_EMPTY = torch.empty(0, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Proposal:
    """The next round of a problem. Random search leaves everything but the points empty.

    Attributes:
        points: (k, d) float64, distinct.
        mean: (k,) their posterior means before the round.
        sd: (k,) their posterior standard deviations.
        acquisition: (k,) acquisition values when chosen.
        incumbent: The value to improve on.
        decided: Share of the points that the acquisition function chose. A point does not count if all its
            candidate points had the same value.
    """

    points: Tensor
    mean: Tensor = _EMPTY
    sd: Tensor = _EMPTY
    acquisition: Tensor = _EMPTY
    incumbent: float = float("nan")
    decided: float = 0.0

    def summary(self) -> dict[str, Any]:
        """Return the proposal's entry in a trace: the surrogate's expectations of the round.

        Numbers have six digits, since a float's last digits depend on the batch and the number of threads.
        """
        columns = {"mean": self.mean, "sd": self.sd, "acquisition": self.acquisition}
        rounded = {name: [float(f"{float(x):.6g}") for x in column] for name, column in columns.items()}
        return {**rounded, "decided": self.decided}


def first_best(values: Tensor) -> Tensor:
    """(b,): the lowest index whose value is within :data:`TIE` of the row's largest."""
    top = values.amax(-1, keepdim=True)
    return (values >= top - TIE * top.abs()).to(torch.uint8).argmax(-1)


class TopK:
    """Chooses the points with the largest acquisition values."""

    fantasies = False

    def choose(
        self, acquire: Acquire, gp: CheapMarginalsGP, X: Tensor, incumbent: Tensor, k: int
    ) -> list[Proposal]:
        """Choose ``k`` points for each of b problems.

        Args:
            acquire: Builds the acquisition function.
            gp: The model of the problems.
            X: Candidate points: (N, d) if all problems share them, (b, N, d), or (b, k, M, d) with separate
                points for each pick.
            incumbent: (b,) values to improve on.
            k: Picks of a round.
        """
        model, best, rows = gp, incumbent, torch.arange(len(incumbent))
        per_pick = X.ndim == 4
        taken, values = torch.zeros(len(rows), X.shape[-2], dtype=torch.bool), torch.empty(0)
        picks: list[tuple[Tensor, ...]] = []
        for i in range(k):
            choices = X[:, i] if per_pick else X  # (N, d) or (b, N, d)
            if i == 0 or per_pick or self.fantasies:
                points = choices.transpose(0, 1) if choices.ndim == 3 else choices.unsqueeze(1)
                function = acquire(model, best.unsqueeze(-1))
                values = function(points.unsqueeze(-2)).mT.expand(len(rows), -1)  # (b, N)
            index = first_best(values if per_pick else values.masked_fill(taken, -torch.inf))
            taken[rows, index] = True
            point = choices[rows, index] if choices.ndim == 3 else choices[index]
            top = values[rows, index]
            picks.append((point, top, top - values.amin(-1) > TIE * top.abs()))
            if self.fantasies and i + 1 < k:
                model, mean = model.fantasise(point)
                best = torch.maximum(best, mean)
        points, values, decided = (torch.stack(parts, 1) for parts in zip(*picks, strict=True))
        mean, variance = gp.marginals(points)
        return [
            Proposal(
                points[i],
                mean[i],
                variance[i].sqrt(),
                values[i],
                float(incumbent[i]),
                float(decided[i].double().mean()),
            )
            for i in range(len(rows))
        ]


class KrigingBeliever(TopK):
    """Chooses points one by one, each added with its posterior mean as reward (Ginsbourger et al., 2010)."""

    fantasies = True
