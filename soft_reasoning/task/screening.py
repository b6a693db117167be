"""What there is to find in a space of soft tokens, before anything is searched.

Random points answer the same questions. Their means differ by chance, too, since each point changes some
answers. A two-way analysis of variance without replication separates the two: rows are points, columns are
questions, and what is left is chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from scipy import stats

from soft_reasoning.checks import real, whole
from soft_reasoning.schedule.method import Context
from soft_reasoning.task.objective import Run, TaskObjective
from soft_reasoning.task.space import TaskSpace
from soft_reasoning.types import Problem, generator_for

SPACES: Mapping[str, TaskSpace] = {
    "one vector for the first token": TaskSpace(),
    "four vectors for the first tokens": TaskSpace(tokens=4),
    "eight vectors for the first tokens": TaskSpace(tokens=8),
    "first token + 0.5 rms": TaskSpace(kind="offset", scale=0.5),
    "first token + 1 rms": TaskSpace(kind="offset", scale=1.0),
    "first token + 1.5 rms": TaskSpace(kind="offset", scale=1.5),
    "mixture of 24 first tokens": TaskSpace(kind="mixture", dim=24),
    "four vectors before the question": TaskSpace(tokens=4, scale=1.0, placement="first"),
}
"""Scales and spaces that :func:`screen` compares by default."""


@dataclass(frozen=True)
class Spread:
    """The standard deviation between points beyond chance, with a 95 % interval; rewards are in [0, 1]."""

    deviation: float
    low: float
    high: float


def spread(rewards: Sequence[Sequence[float]], confidence: float = 0.95) -> Spread:
    """Estimate the standard deviation of the points' true means from their ``rewards`` (points x questions).

    With mean squares MS of points and of what is left, the variance between points is
    (MS_points - MS_left) / questions, at least 0. Its interval is that of the F distribution (Searle,
    Casella and McCulloch 1992, section 3.6).

    Raises:
        OptionError: For fewer than two points or two questions.
    """
    table = torch.tensor([list(row) for row in rewards], dtype=torch.float64)
    points, questions = table.shape if table.ndim == 2 else (0, 0)
    whole("points", points, least=2)
    whole("questions", questions, least=2)
    real("confidence", confidence, above=0.0, below=1.0)
    means = table.mean(1)
    left = table - means[:, None] - table.mean(0) + table.mean()
    degrees = points - 1, (points - 1) * (questions - 1)
    between = questions * float((means - means.mean()).square().sum()) / degrees[0]
    chance = float(left.square().sum()) / degrees[1]
    if chance <= 0:  # all points answer alike, or differ by constants
        deviation = math.sqrt(between / questions)
        return Spread(deviation, deviation, deviation)
    tail, ratio = (1 - confidence) / 2, between / chance
    quantiles = [float(stats.f.ppf(share, *degrees)) for share in (1 - tail, tail)]
    bounds = [(ratio / quantile - 1) * chance / questions for quantile in quantiles]
    variances = [(between - chance) / questions, *bounds]
    return Spread(*(math.sqrt(max(variance, 0.0)) for variance in variances))


@dataclass(frozen=True)
class Screened:
    """A space after random points.

    Attributes:
        name: Its name.
        means: The mean reward of each point.
        changed: The share of the greedy texts that a point changes, in the mean.
        spread: What there is to find.
    """

    name: str
    means: tuple[float, ...]
    changed: float
    spread: Spread


def screen(
    problems: Sequence[Problem],
    context: Context,
    spaces: Mapping[str, TaskSpace] = SPACES,
    *,
    points: int = 12,
    accepted: Sequence[Sequence[str]] | None = None,
    max_new_tokens: int = 300,
    run: Run | None = None,
) -> list[Screened]:
    """Try ``points`` random points of each of ``spaces`` on ``problems``, and estimate what there is to find.

    The other arguments are those of :class:`TaskObjective`.
    """
    whole("points", points, least=2)
    screened: list[Screened] = []
    greedy: dict[int, tuple[str, ...]] = {}
    for name, space in spaces.items():
        objective = TaskObjective(
            problems, space, context, accepted=accepted, max_new_tokens=max_new_tokens, run=run
        )
        if objective.replaced not in greedy:
            greedy[objective.replaced] = objective.ask([None])[0].texts
        X = torch.randn(
            points, objective.dim, dtype=torch.float64, generator=generator_for(context.seed, "screen", name)
        )
        evaluations = objective.evaluate(X)
        changed = [
            a != b for e in evaluations for a, b in zip(e.texts, greedy[objective.replaced], strict=True)
        ]
        screened.append(
            Screened(
                name,
                tuple(e.mean for e in evaluations),
                fmean(changed),
                spread([e.rewards for e in evaluations]),
            )
        )
    return screened
