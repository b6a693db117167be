"""What there is to find in a space: the estimate covers, and the screening reports it."""

import numpy as np
import pytest

from soft_reasoning.checks import OptionError
from soft_reasoning.task import Screened, Spread, TaskObjective, screen, spread
from soft_reasoning.task.space import TaskSpace
from tests.task.world import PROBLEMS, fake_context


@pytest.mark.parametrize("shift", [0.0, 0.3, 0.6])
def test_the_interval_holds_the_truth(shift):
    stream = np.random.default_rng(0)
    difficulty = stream.normal(0, 2, 20000)

    def chance(odds):
        return 1 / (1 + np.exp(-odds))

    truth = np.std([chance(difficulty + shift * s).mean() for s in stream.normal(size=300)])
    held = []
    for _ in range(300):
        odds = stream.choice(difficulty, 60) + shift * stream.normal(size=(12, 1))
        part = spread((stream.uniform(size=odds.shape) < chance(odds)).astype(float).tolist())
        assert part.low <= part.deviation <= part.high
        held.append(part.low <= truth <= part.high)
    assert 0.91 <= np.mean(held) <= 0.99


def test_shared_questions_are_no_spread_between_points():
    rows = [[float(i % 2) for i in range(20)]] * 5
    assert spread(rows).high == 0
    assert spread([[1.0, 1.0], [0.0, 0.0]]).low == 0, "nothing is left over to tell chance by"
    for few, name in ((rows[:1], "points"), ([[1.0], [0.0]], "questions")):
        with pytest.raises(OptionError, match=name):
            spread(few)


def test_a_screening_compares_points_with_greedy_decoding():
    objective = TaskObjective(PROBLEMS[:12], TaskSpace(dim=5), fake_context(), max_new_tokens=30)
    [greedy] = objective.ask([None])
    screened = screen("here", objective, greedy, points=4)
    assert screened.greedy == greedy.mean and screened.means == tuple(e.mean for e in objective.evaluations)
    assert screened.spread == spread([evaluation.rewards for evaluation in objective.evaluations])


def test_a_space_is_promising_if_its_best_points_beat_greedy_decoding_by_more_than_chance():
    def screened(mean, deviation, low, greedy=0.4):
        return Screened("here", greedy, (mean, mean), Spread(deviation, low, deviation + 0.02))

    assert screened(0.4, 0.05, 0.01).promising
    assert screened(0.4, 0.05, 0.01).reach == pytest.approx(0.1)
    assert not screened(0.4, 0.05, 0.0).promising, "chance alone"
    assert not screened(0.4, 0.005, 0.001).promising, "less than a point or two"
    assert not screened(0.2, 0.1, 0.05).promising, "its points ruin answers"
