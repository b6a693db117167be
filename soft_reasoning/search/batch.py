"""Choosing the k points of a round from the candidate points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from soft_reasoning.search.model import FixedNoiseGP

TIE = 1e-10
"""Values closer than this, relative to the largest, are ties, which the lowest index wins. So rounding, which
differs between batch sizes, decides nothing."""

Acquire = Callable[[Model, Tensor], AcquisitionFunction]
"""Builds the acquisition function of a model and of the values (b, 1) to improve on."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The points of a round.

    Attributes:
        points: (b, k, d), distinct.
        values: (b, k) acquisition values when chosen.
        decided: (b, k) whether the candidate points' values differed: the acquisition function decided.
        index: (b, k) the points' indices among the N or M candidate points.
    """

    points: Tensor
    values: Tensor
    decided: Tensor
    index: Tensor


class Batch(Protocol):
    """A rule that chooses the k points of a round."""

    def choose(
        self,
        acquire: Acquire,
        gp: FixedNoiseGP,
        X: Tensor,
        incumbent: Tensor,
        k: int,
        behaviour: Tensor | None = None,
    ) -> Choice:
        """Choose ``k`` points for each of b problems.

        Args:
            acquire: Builds the acquisition function.
            gp: The model of the problems.
            X: Candidate points: (N, d) where all problems share them, (b, N, d), or (b, k, M, d) where each
                pick has points of its own.
            incumbent: (b,) values to improve on.
            k: Picks of a round.
            behaviour: (b, N) of a pool, ``X`` (b, N, d): points with equal numbers behave alike, and one of
                them at most is chosen. None of those with -1 is. There are at least k others.
        """
        ...


def first_best(values: Tensor) -> Tensor:
    """(b,): the lowest index whose value is within :data:`TIE` of the row's largest."""
    top = values.amax(-1, keepdim=True)
    return (values >= top - TIE * top.abs()).to(torch.uint8).argmax(-1)


class TopK:
    """The points of the largest acquisition values."""

    fantasies = False

    def choose(
        self,
        acquire: Acquire,
        gp: FixedNoiseGP,
        X: Tensor,
        incumbent: Tensor,
        k: int,
        behaviour: Tensor | None = None,
    ) -> Choice:
        rows = torch.arange(len(incumbent))
        own = X.ndim == 4  # each pick has points of its own
        taken = torch.zeros(len(rows), X.shape[-2], dtype=torch.bool)
        if behaviour is not None:
            taken = behaviour < 0
        points: list[Tensor] = []
        top: list[Tensor] = []
        decided: list[Tensor] = []
        indices: list[Tensor] = []
        values = torch.empty(0)
        for i in range(k):
            some = X[:, i] if own else X
            if i == 0 or own or self.fantasies:
                as_botorch = (some.transpose(0, 1) if some.ndim == 3 else some.unsqueeze(1)).unsqueeze(-2)
                function = acquire(gp, incumbent.unsqueeze(-1))
                values = function(as_botorch).mT.expand(len(rows), -1)  # (b, N)
            index = first_best(values if own else values.masked_fill(taken, -torch.inf))
            taken[rows, index] = True
            if behaviour is not None:
                taken = taken | (behaviour == behaviour[rows, index].unsqueeze(-1))
            indices.append(index)
            points.append(some[rows, index] if some.ndim == 3 else some[index])
            top.append(values[rows, index])
            decided.append(top[-1] - values.amin(-1) > TIE * top[-1].abs())
            if self.fantasies and i + 1 < k:
                gp, mean = gp.fantasise(points[-1])
                incumbent = torch.maximum(incumbent, mean)
        return Choice(
            torch.stack(points, 1), torch.stack(top, -1), torch.stack(decided, -1), torch.stack(indices, -1)
        )


class KrigingBeliever(TopK):
    """One point after another, each added with its posterior mean as reward (Ginsbourger et al., 2010)."""

    fantasies = True
