"""What a task's questions teach together: a soft token for all of them, and a probe that judges solutions."""

from soft_reasoning.task.fitting import ProbeFitting
from soft_reasoning.task.objective import Evaluation, TaskObjective
from soft_reasoning.task.screening import SPACES, Screened, Spread, screen, spread
from soft_reasoning.task.space import TaskPoint, TaskSpace
from soft_reasoning.task.tuning import Tuned, Tuning, TuningResult, tune

__all__ = [
    "SPACES",
    "Evaluation",
    "ProbeFitting",
    "Screened",
    "Spread",
    "TaskObjective",
    "TaskPoint",
    "TaskSpace",
    "Tuned",
    "Tuning",
    "TuningResult",
    "screen",
    "spread",
    "tune",
]
