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

from soft_reasoning.checks import whole
from soft_reasoning.task.objective import Evaluation, TaskObjective
from soft_reasoning.task.space import TaskSpace
from soft_reasoning.types import generator_for

SPACES: Mapping[str, TaskSpace] = {
    "one vector for the first token": TaskSpace(),
    "four vectors for the first tokens": TaskSpace(tokens=4),
}
"""Those in which points were measured to differ by more than chance (experiments/results/task.md)."""
WORTH = 0.015
"""Mean reward that the best points of a space must gain over greedy decoding to be worth a search."""


@dataclass(frozen=True)
class Spread:
    """The standard deviation between points beyond chance, with a 95 % interval; rewards are in [0, 1]."""

    deviation: float
    low: float
    high: float


def spread(rewards: Sequence[Sequence[float]]) -> Spread:
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
    means = table.mean(1)
    left = table - means[:, None] - table.mean(0) + table.mean()
    degrees = points - 1, (points - 1) * (questions - 1)
    between = questions * float((means - means.mean()).square().sum()) / degrees[0]
    chance = float(left.square().sum()) / degrees[1]
    if chance <= 0:  # all points answer alike, or differ by constants
        deviation = math.sqrt(between / questions)
        return Spread(deviation, 0.0, deviation)
    quantiles = [float(stats.f.ppf(share, *degrees)) for share in (0.975, 0.025)]
    bounds = [(between / quantile - chance) / questions for quantile in quantiles]
    variances = [(between - chance) / questions, *bounds]
    return Spread(*(math.sqrt(max(variance, 0.0)) for variance in variances))


@dataclass(frozen=True)
class Screened:
    """A space after random points.

    Attributes:
        name: Its name.
        greedy: The mean reward of greedy decoding on the same questions.
        means: The mean reward of each point.
        spread: What there is to find.
    """

    name: str
    greedy: float
    means: tuple[float, ...]
    spread: Spread

    @property
    def reach(self) -> float:
        """The gain over greedy decoding of the best of some forty points: two deviations above their mean."""
        return fmean(self.means) + 2 * self.spread.deviation - self.greedy

    @property
    def promising(self) -> bool:
        """Whether there is something to find: a spread that is not chance alone, and a reach of ``WORTH``."""
        return self.spread.low > 0 and self.reach >= WORTH


def screen(name: str, objective: TaskObjective, greedy: Evaluation, *, points: int = 12) -> Screened:
    """Evaluate random points of a space, and estimate what there is to find.

    Args:
        name: The space's name, which decides the points.
        objective: The questions and the space.
        greedy: Greedy decoding of the same questions, ``objective.ask([None])[0]``.
        points: Number of points.
    """
    whole("points", points, least=2)
    stream = generator_for(objective.context.seed, "screen", name)
    X = torch.randn(points, objective.dim, dtype=torch.float64, generator=stream)
    evaluations = objective.evaluate(X)
    rewards = [evaluation.rewards for evaluation in evaluations]
    return Screened(name, greedy.mean, tuple(e.mean for e in evaluations), spread(rewards))
