"""Correlation of the points that a search sampled, by round (paper, Figure "low")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def correlation_matrices(records: Sequence[Mapping[str, Any]]) -> tuple[list[np.ndarray], list[int]]:
    """Return the correlation matrix of the points of rounds 0 to r for every r, and the points per round.

    Each is the mean over the problems that reached round r. The points of a round are sorted by reward,
    best first, so that the common part of good points shows. Candidates without a point, and points of one
    coordinate, which have no correlation, are left out; a round without any is skipped.
    """
    problems = [_rounds(record) for record in records]
    size = max((len(rounds[0]) for rounds in problems if rounds), default=0)
    matrices: list[np.ndarray] = []
    for r in range(max(map(len, problems), default=0)):
        reached = [rounds[: r + 1] for rounds in problems if len(rounds) > r]
        matrices.append(np.mean([np.corrcoef(np.concatenate(rounds)) for rounds in reached], axis=0))
    return matrices, [size] * len(matrices)


def _rounds(record: Mapping[str, Any]) -> list[np.ndarray]:
    """The points (k, d) of each round, highest reward first."""
    rounds: dict[int, list[Mapping[str, Any]]] = {}
    for candidate in record["candidates"]:
        if candidate["u"] is not None and len(candidate["u"]) > 1:
            rounds.setdefault(candidate["round"], []).append(candidate)
    ordered = [sorted(group, key=lambda c: -c["reward"]) for _, group in sorted(rounds.items())]
    return [np.array([candidate["u"] for candidate in group]) for group in ordered]
