"""What the searches for a task's soft tokens share: their questions, and the choice of the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from soft_reasoning.schedule.method import Context
from soft_reasoning.task import Evaluation, TaskObjective
from soft_reasoning.task.space import TaskSpace
from soft_reasoning.types import Problem

FINALISTS = 5


@dataclass(frozen=True)
class Parts:
    """What a seed's searches share: its context, and the three sets of problems."""

    context: Context
    training: Sequence[Problem]
    validation: Sequence[Problem]
    test: Sequence[Problem]

    def objective(self, problems: Sequence[Problem], space: TaskSpace) -> TaskObjective:
        return TaskObjective(problems, space, self.context)


Found = tuple[Tensor, float, float, int]
"""Vectors, their mean rewards on training and validation problems, and the evaluations that it took."""


def validated(
    parts: Parts, space: TaskSpace, vectors: Sequence[Tensor], evaluations: Sequence[Evaluation]
) -> Found:
    """The best on the validation problems of the best on the training problems."""
    order = sorted(range(len(vectors)), key=lambda i: -evaluations[i].mean)[:FINALISTS]
    results = parts.objective(parts.validation, space).ask([vectors[i] for i in order])
    place = max(range(len(order)), key=lambda i: results[i].mean)
    best = order[place]
    return vectors[best], evaluations[best].mean, results[place].mean, len(vectors)
