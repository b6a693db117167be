"""The search for a task's soft tokens: it learns, goes on where it ended, and validates."""

from dataclasses import replace

import pytest
import torch

from soft_reasoning.answers import Grader
from soft_reasoning.checks import OptionError
from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.prompts import Prompts, Wording
from soft_reasoning.schedule.method import Context
from soft_reasoning.task import Evaluation, TaskObjective, tune
from soft_reasoning.task.space import TaskSpace
from soft_reasoning.task.tuning import propose
from soft_reasoning.types import Problem, generator_for

PROBLEMS = [Problem(f"p{i}", f"What is {i} and {i + 3}?", str(i % 4)) for i in range(24)]


@pytest.fixture(scope="module")
def context():
    engine = FakeEngine()
    return Context(engine, Prompts(engine.tokenizer, Wording(ask="{question}\n")), Grader(), seed=0)


def objective(context, problems=PROBLEMS[:12]):
    return TaskObjective(problems, TaskSpace(dim=4), context, max_new_tokens=30)


@pytest.mark.parametrize("reached", [8, 6], ids=["between batches", "within a batch"])
def test_a_search_that_was_interrupted_ends_as_one_that_was_not(context, tmp_path, reached):
    settings = {"evaluations": 12, "initial": 4, "batch": 4}
    whole = tune(objective(context), **settings)
    assert len(whole.evaluations) == 12 and whole.search in whole.evaluations
    path = tmp_path / "history.jsonl"

    def stop(evaluation):
        if len(path.read_text().splitlines()) == 1 + reached:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(objective(context), history=path, on_evaluation=stop, **settings)
    with open(path, "a") as file:
        file.write('{"u": [')  # a killed process
    again = objective(context)
    assert tune(again, history=path, **settings) == whole
    assert len(again.evaluations) == 12 - reached, "the others came from the file"


def test_a_history_of_another_search_is_refused(context, tmp_path):
    path, settings = tmp_path / "history.jsonl", {"evaluations": 4, "initial": 4}
    tune(objective(context), history=path, **settings)
    changed = [replace(PROBLEMS[0], gold="x"), *PROBLEMS[1:12]]
    reworded = replace(context, prompts=Prompts(context.engine.tokenizer, Wording(ask="Q: {question}\n")))
    space = TaskSpace(kind="offset", dim=4)
    for differing, other in {
        "space": TaskObjective(PROBLEMS[:12], space, context, max_new_tokens=30),
        "questions": objective(context, changed),
        "seed": objective(replace(context, seed=1)),
        "max_new_tokens": TaskObjective(PROBLEMS[:12], TaskSpace(dim=4), context, max_new_tokens=31),
        "prompt": objective(reworded),
    }.items():
        with pytest.raises(OptionError, match=f"history: .* with another {differing}; take another file"):
            tune(other, history=path, **settings)
    for text in ("[1]\n", '{"u": [1]}\n{}\n', "x\n"):
        path.write_text(text)
        with pytest.raises(OptionError, match="history: expected evaluations of a search, got"):
            tune(objective(context), history=path, **settings)


def test_the_finalists_are_compared_on_other_questions(context):
    judge = objective(context, PROBLEMS[12:])
    found = tune(objective(context), judge, evaluations=8, initial=4, finalists=3)
    [again] = judge.ask([judge.vectors(found.point.u)])
    assert found.validation == again
    assert set(found.point.questions) == {problem.id for problem in PROBLEMS}
    assert found.greedy == judge.ask([None])[0]


def test_proposals_find_the_top_of_a_smooth_mean():
    """A mean that is a smooth function of u, seen through binomial noise."""
    bounds = torch.tensor([[-1.7] * 6, [1.7] * 6], dtype=torch.float64)
    stream = generator_for(0, "test")

    def truth(u):
        return float(torch.sigmoid(1.5 - (u - 0.8).square().sum() / 2))

    def evaluation(u):
        draws = torch.rand(64, generator=stream, dtype=torch.float64)
        return Evaluation(tuple(u.tolist()), tuple((draws < truth(u)).double().tolist()), 0)

    done = [evaluation(u) for u in -1.7 + 3.4 * torch.rand(12, 6, generator=stream, dtype=torch.float64)]
    for i in range(4):
        points = propose(done, bounds, 0.6, 4, i)
        assert points.shape == (4, 6) and (points >= bounds[0]).all() and (points <= bounds[1]).all()
        done += [evaluation(u) for u in points]
    first, last = (sum(truth(torch.tensor(e.u)) for e in part) for part in (done[:12], done[-12:]))
    assert last / 12 > first / 12 + 0.15


def test_bad_values(context):
    for options in ({"initial": 1}, {"evaluations": 3}, {"region": 0.0}, {"batch": 0}, {"finalists": 0}):
        with pytest.raises(OptionError, match=next(iter(options))):
            tune(objective(context), **options)
