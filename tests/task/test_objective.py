"""A task's mean reward as a BoTorch test problem, on the fake engine."""

from dataclasses import replace

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.test_functions.base import BaseTestProblem

from soft_reasoning.checks import OptionError
from soft_reasoning.method.sampling import ChainOfThought
from soft_reasoning.method.soft_token import SoftToken
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.task import TaskObjective
from soft_reasoning.task.space import TaskSpace
from soft_reasoning.types import UserError, generator_for
from tests.task.world import PROBLEMS, fake_context

SPACES = [TaskSpace(dim=6), TaskSpace(dim=6, tokens=3)]


@pytest.fixture(scope="module")
def context():
    return fake_context()


def points(objective, count):
    generator = generator_for(0, "points")
    return torch.randn(count, objective.dim, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("space", SPACES, ids=lambda space: str(space.tokens))
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
    evaluations = objective.evaluate(X)
    for evaluation in evaluations:
        share = (evaluation.mean * 24 + 1) / 26
        assert evaluation.variance == pytest.approx(share * (1 - share) / 24)
    means, variances = (
        X.new_tensor([[getattr(e, name)] for e in evaluations]) for name in ("mean", "variance")
    )
    SingleTaskGP(X, means, variances).posterior(X)
    assert torch.equal(TaskObjective(PROBLEMS, TaskSpace(dim=6), context, negate=True)(X), -means.squeeze(-1))


def test_the_likely_first_tokens_are_a_control_of_a_search(context):
    objective = TaskObjective(PROBLEMS, TaskSpace(), context, max_new_tokens=30)
    likely = objective.likely(5)
    assert len(set(likely)) == 5 and not set(likely) & set(context.engine.tokenizer.all_special_ids)
    tried = objective.ask(list(context.engine.embed(likely).unsqueeze(1)))
    assert [len(evaluation.rewards) for evaluation in tried] == [24] * 5


def test_bad_values(context):
    objective = TaskObjective(PROBLEMS, TaskSpace(dim=6), context)
    with pytest.raises(ValueError, match="batch x 6"):
        objective(torch.zeros(2, 3))
    for problems in ([], [*PROBLEMS, PROBLEMS[0]]):
        with pytest.raises(UserError, match="questions: expected one or more with different ids"):
            TaskObjective(problems, TaskSpace(), context)
    with pytest.raises(UserError, match="p0: expected a correct answer"):
        TaskObjective([replace(PROBLEMS[0], gold=None)], TaskSpace(), context)
    with pytest.raises(OptionError, match="scale"):
        TaskSpace(scale=0.0)


def test_samples_after_the_soft_token_vote(context):
    point = TaskObjective(PROBLEMS, TaskSpace(dim=6), context).point([0.5] * 6)
    method = SoftToken(point=point, samples=5, temperature=1.0, max_new_tokens=30)
    for _, result in drive(PROBLEMS, method, context):
        answers = [candidate.answer for candidate in result.candidates]
        assert len(answers) == 5 and answers.count(result.answer) == max(map(answers.count, answers))
    with pytest.raises(OptionError, match="temperature"):
        SoftToken(point=point, samples=5)
