"""An Inspect task of the bundled problems, solved by Soft Reasoning on the bundled model."""

import sys

from inspect_ai import Task, eval, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import generate

from soft_reasoning.data.demo import demo_dataset


@task
def word_problems(limit: int = 8) -> Task:
    """The first ``limit`` validation problems; their answers are numbers."""
    problems = demo_dataset("validation", name="demo", limit=limit).problems()
    samples = [Sample(input=one.question, target=one.gold or "", id=one.id) for one in problems]
    return Task(dataset=samples, solver=generate(), scorer=match(location="end", numeric=True))


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "logs"
    [log] = eval(word_problems(), model="soft_reasoning/demo", model_args={"rounds": 2}, log_dir=folder)
    assert log.results is not None, log.error
    print("accuracy", log.results.scores[0].metrics["accuracy"].value)
