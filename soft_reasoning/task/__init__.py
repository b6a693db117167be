"""What a task's questions teach together: a soft token for all of them, and a probe that judges solutions."""

from soft_reasoning.task.learning import Tuning, TuningResult
from soft_reasoning.task.objective import Evaluation, TaskObjective
from soft_reasoning.task.probe import ProbeFitting
from soft_reasoning.task.screening import SPACES, Screened, Spread, screen, spread
from soft_reasoning.task.space import TaskPoint, TaskSpace
from soft_reasoning.task.tuning import Tuned, tune

__all__ = [
    "SPACES",
    "Evaluation",
    "TuningResult",
    "ProbeFitting",
    "Screened",
    "Spread",
    "TaskObjective",
    "TaskPoint",
    "TaskSpace",
    "Tuned",
    "Tuning",
    "screen",
    "spread",
    "tune",
]
