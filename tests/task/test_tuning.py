"""The search for a task's soft tokens: it learns, goes on where it ended, and validates."""

import pytest
import torch

from soft_reasoning.checks import OptionError
from soft_reasoning.engine.completions import StoreFile, replaying
from soft_reasoning.task import Evaluation, TaskObjective, tune
from soft_reasoning.task.space import TaskSpace
from soft_reasoning.task.tuning import propose
from soft_reasoning.types import generator_for
from tests.task.world import PROBLEMS, fake_context


def objective(problems=PROBLEMS[:12]):
    return TaskObjective(problems, TaskSpace(dim=4), fake_context(), max_new_tokens=30)


def test_an_interrupted_search_generates_only_what_is_missing(tmp_path):
    other = objective(PROBLEMS[12:16])
    whole = tune(objective(), other, evaluations=15)
    assert len(whole.evaluations) == 15 and whole.search in whole.evaluations
    seen = []

    def stop(evaluation):
        seen.append(evaluation)
        if len(seen) == 13:
            raise KeyboardInterrupt

    first, again = objective(), objective()
    store = StoreFile.of(str(tmp_path), 1.0)
    with replaying(store, [first.context.engine]), pytest.raises(KeyboardInterrupt):
        tune(first, other, evaluations=15, on_evaluation=stop)
    with replaying(store, [again.context.engine]):
        assert tune(again, other, evaluations=15) == whole
    assert again.usage["candidate"].replayed_tokens == first.usage["candidate"].generated_tokens > 0


def test_the_finalists_are_compared_on_other_questions():
    judge = objective(PROBLEMS[12:])
    found = tune(objective(), judge, evaluations=13)
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
    for i in range(12):
        points = propose(done, bounds, i)
        assert points.shape == (1, 6) and (points >= bounds[0]).all() and (points <= bounds[1]).all()
        done.append(evaluation(points[0]))
    first, last = (sum(truth(torch.tensor(e.u)) for e in part) for part in (done[:12], done[-6:]))
    assert last / 6 > first / 12 + 0.15


def test_a_search_has_more_points_than_its_random_ones():
    with pytest.raises(OptionError, match="evaluations"):
        tune(objective(), objective(), evaluations=11)
