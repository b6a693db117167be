"""The bundled problems as a task of Inspect: ``inspect eval docs/scripts/inspect_task.py --model ...``."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import generate

from soft_reasoning.lab.data.demo import demo_dataset


@task
def word_problems(limit: int = 8) -> Task:
    """The first ``limit`` validation problems; their answers are numbers."""
    problems = demo_dataset("validation", name="demo", limit=limit).problems()
    samples = [Sample(input=each.question, target=each.gold or "", id=each.id) for each in problems]
    return Task(dataset=samples, solver=generate(), scorer=match(location="end", numeric=True))
