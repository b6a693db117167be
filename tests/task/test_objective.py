"""A task's mean reward as a BoTorch test problem, on the fake engine."""

import json
from dataclasses import replace

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.test_functions.base import BaseTestProblem

from soft_reasoning import SoftReasoner
from soft_reasoning.answers import Grader
from soft_reasoning.checks import OptionError
from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.lab.data.demo import FOLDER
from soft_reasoning.method.cot import ChainOfThought
from soft_reasoning.method.soft_token import SoftToken
from soft_reasoning.prompts import Prompts, Wording
from soft_reasoning.schedule.method import Context
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.task import TaskObjective, tune
from soft_reasoning.task.space import TaskPoint, TaskSpace
from soft_reasoning.types import Problem, UserError, generator_for

GOLD = [str(i % 4) for i in range(24)]
PROBLEMS = [Problem(f"p{i}", f"What is {i} and {i + 3}?", gold) for i, gold in enumerate(GOLD)]
SPACES = [
    TaskSpace(dim=6),
    TaskSpace(dim=6, tokens=3),
    TaskSpace(kind="offset", dim=6, tokens=2),
    TaskSpace(kind="mixture", dim=5, tokens=2),
    TaskSpace(dim=6, tokens=2, placement="first"),
]


@pytest.fixture(scope="module")
def context():
    engine = FakeEngine()
    return Context(engine, Prompts(engine.tokenizer, Wording(ask="{question}\n")), Grader(), seed=0)


def points(objective, count):
    generator = generator_for(0, "points")
    return torch.randn(count, objective.dim, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("space", SPACES, ids=lambda space: f"{space.kind}-{space.tokens}-{space.placement}")
def test_a_value_is_the_accuracy_of_the_method_with_that_point(context, space):
    objective = TaskObjective(PROBLEMS, space, context, max_new_tokens=30)
    assert isinstance(objective, BaseTestProblem) and objective.bounds.shape == (2, objective.dim)
    X = points(objective, 3)
    values = objective(X)
    for u, value, evaluation in zip(X.tolist(), values.tolist(), objective.evaluations, strict=True):
        method = SoftToken(point=objective.point(u), max_new_tokens=30)
        results = {problem.id: result for problem, result in drive(PROBLEMS, method, context)}
        right = [float(results[p.id].answer == p.gold) for p in PROBLEMS]
        assert list(evaluation.rewards) == right and value == pytest.approx(sum(right) / len(right))
        assert evaluation.u == tuple(u)
        assert evaluation.tokens == sum(r.candidates[0].generated_tokens for r in results.values())


def test_without_soft_tokens_it_is_greedy_decoding(context):
    objective = TaskObjective(PROBLEMS, TaskSpace(), context, max_new_tokens=30)
    [greedy] = objective.ask([None])
    solved = {p.id: r for p, r in drive(PROBLEMS, ChainOfThought(max_new_tokens=30), context)}
    assert list(greedy.rewards) == [float(solved[p.id].answer == p.gold) for p in PROBLEMS]
    assert not objective.evaluations, "it is no point of the space"


def test_it_observes_binomial_variances_and_feeds_a_gaussian_process(context):
    objective = TaskObjective(PROBLEMS, TaskSpace(dim=6), context, max_new_tokens=30)
    X = points(objective, 5)
    means, variances = objective.observe(X)
    assert means.shape == variances.shape == (5, 1)
    for mean, variance in zip(means.flatten().tolist(), variances.flatten().tolist(), strict=True):
        share = (mean * 24 + 1) / 26
        assert variance == pytest.approx(share * (1 - share) / 24)
    SingleTaskGP(X, means, variances).posterior(X)
    assert torch.equal(TaskObjective(PROBLEMS, TaskSpace(dim=6), context, negate=True)(X), -means.squeeze(-1))


def test_answers_of_programs_stand_for_references(context):
    unlabelled = [replace(problem, gold=None) for problem in PROBLEMS]
    accepted = [(gold, gold, "99") for gold in GOLD]
    labelled = TaskObjective(PROBLEMS, TaskSpace(dim=6), context, max_new_tokens=30)
    objective = TaskObjective(unlabelled, TaskSpace(dim=6), context, accepted=accepted, max_new_tokens=30)
    X = points(objective, 4)
    assert objective(X).tolist() == pytest.approx([2 / 3 * value for value in labelled(X).tolist()])
    with pytest.raises(UserError, match="p0: expected a correct answer"):
        TaskObjective(unlabelled, TaskSpace(), context)


def test_bad_values(context):
    objective = TaskObjective(PROBLEMS, TaskSpace(dim=6), context)
    with pytest.raises(ValueError, match="batch x 6"):
        objective(torch.zeros(2, 3))
    with pytest.raises(UserError, match="questions: expected at least one"):
        TaskObjective([], TaskSpace(), context)
    with pytest.raises(UserError, match="each id once"):
        TaskObjective([*PROBLEMS, PROBLEMS[0]], TaskSpace(), context)
    with pytest.raises(OptionError, match="placement: expected last"):
        TaskSpace(kind="offset", placement="first")
    with pytest.raises(UserError, match="dim: expected at most the vocabulary"):
        TaskObjective(PROBLEMS, TaskSpace(kind="mixture", dim=10**4), context)


def test_a_point_is_a_file_for_its_model_and_prompt(context, tmp_path):
    objective = TaskObjective(PROBLEMS, TaskSpace(kind="offset", dim=6), context, max_new_tokens=30)
    point = objective.point([0.5] * 6)
    point.save(tmp_path / "point.json")
    assert TaskPoint.load(tmp_path / "point.json") == point
    method = SoftToken(point=tmp_path / "point.json", max_new_tokens=30)
    assert method.point == point
    other = replace(context, prompts=Prompts(context.engine.tokenizer, Wording(ask="Q: {question}\n")))
    with pytest.raises(UserError, match="made for this prompt"):
        list(drive(PROBLEMS, method, other))
    wide = FakeEngine(hidden_size=16)
    with pytest.raises(UserError, match="made for this model"):
        list(drive(PROBLEMS, method, replace(context, engine=wide)))
    adapted = FakeEngine()
    adapted.settings = {"adapter": str(tmp_path)}
    with pytest.raises(UserError, match="made for this model"):
        list(drive(PROBLEMS, method, replace(context, engine=adapted)))
    with pytest.raises(UserError, match="24 that it was, such as p0"):
        point.check_unseen(PROBLEMS)
    point.check_unseen([Problem("new", "Another?", "1")])
    (tmp_path / "other.json").write_text("{}")
    for name in ("other.json", "none.json"):
        with pytest.raises(OptionError, match="point: expected a file that soft-reasoning tune wrote"):
            SoftToken(point=tmp_path / name)


def test_samples_after_the_soft_token_vote(context):
    point = TaskObjective(PROBLEMS, TaskSpace(dim=6), context).point([0.5] * 6)
    method = SoftToken(point=point, samples=5, temperature=1.0, max_new_tokens=30)
    for _, result in drive(PROBLEMS, method, context):
        answers = [candidate.answer for candidate in result.candidates]
        assert len(answers) == 5 and answers.count(result.answer) == max(map(answers.count, answers))
    with pytest.raises(OptionError, match="temperature"):
        SoftToken(point=point, samples=5)


def test_a_reasoner_drives_the_search_and_decodes_after_what_it_found():
    with SoftReasoner.from_pretrained("demo", method="cot", max_new_tokens=40) as reasoner:
        rows = [json.loads(line) for line in (FOLDER / "validation.jsonl").read_text().splitlines()[:8]]
        problems = [reasoner.problem(row["question"], str(row["answer"])) for row in rows]
        objective = reasoner.task_objective(problems, TaskSpace(dim=4))
        found = tune(objective, evaluations=4, initial=3)
        method = SoftToken(point=found.point, max_new_tokens=40)
        solutions = reasoner.solve([row["question"] for row in rows], method=method)
        right = [float(s.answer == p.gold) for s, p in zip(solutions, problems, strict=True)]
        assert right == list(found.search.rewards)
