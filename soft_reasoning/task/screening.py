"""What there is to find in a space of soft tokens, before anything is searched.

Random points answer the same questions. Their means differ by chance, too, since each point changes some
answers. A two-way analysis of variance without replication separates the two: rows are points, columns are
questions, and what is left is chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from scipy import stats

from soft_reasoning.checks import real, whole
from soft_reasoning.schedule.method import Context
from soft_reasoning.task.objective import Evaluation, Run, TaskObjective
from soft_reasoning.task.space import TaskSpace
from soft_reasoning.types import MAX_NEW_TOKENS, Problem, generator_for

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
WORTH = 0.015
"""Mean reward that the best points of a space must gain over greedy decoding to be worth a search."""


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
        return Spread(deviation, 0.0, deviation)
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
        greedy: The mean reward of greedy decoding on the same questions.
        means: The mean reward of each point.
        changed: The mean share of the greedy solutions that a point changes.
        spread: What there is to find.
    """

    name: str
    greedy: float
    means: tuple[float, ...]
    changed: float
    spread: Spread

    @property
    def reach(self) -> float:
        """The gain over greedy decoding of the best of some forty points: two deviations above their mean."""
        return fmean(self.means) + 2 * self.spread.deviation - self.greedy

    @property
    def promising(self) -> bool:
        """Whether there is something to find: a spread that is not chance alone, and a reach of ``WORTH``."""
        return self.spread.low > 0 and self.reach >= WORTH


def screen(
    problems: Sequence[Problem],
    context: Context,
    spaces: Mapping[str, TaskSpace] = SPACES,
    *,
    points: int = 12,
    accepted: Sequence[Sequence[str]] | None = None,
    max_new_tokens: int = MAX_NEW_TOKENS,
    run: Run | None = None,
    on_screened: Callable[[Screened], None] = lambda _: None,
) -> list[Screened]:
    """Try ``points`` random points of each of ``spaces`` on ``problems``, and estimate what there is to find.

    ``on_screened`` is called after each space. The other arguments are those of :class:`TaskObjective`.
    """
    whole("points", points, least=2)
    screened: list[Screened] = []
    greedy: dict[int, Evaluation] = {}
    for name, space in spaces.items():
        objective = TaskObjective(
            problems, space, context, accepted=accepted, max_new_tokens=max_new_tokens, run=run
        )
        if objective.replaced not in greedy:
            [greedy[objective.replaced]] = objective.ask([None])
        plain = greedy[objective.replaced]
        X = torch.randn(
            points, objective.dim, dtype=torch.float64, generator=generator_for(context.seed, "screen", name)
        )
        evaluations = objective.evaluate(X)
        changed = [a != b for e in evaluations for a, b in zip(e.texts, plain.texts, strict=True)]
        screened.append(
            Screened(
                name,
                plain.mean,
                tuple(e.mean for e in evaluations),
                fmean(changed),
                spread([e.rewards for e in evaluations]),
            )
        )
        on_screened(screened[-1])
    return screened
