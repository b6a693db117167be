"""What there is to find in a space: the estimate covers, and the screening reports it."""

import numpy as np
import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.checks import OptionError
from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.prompts import Prompts, Wording
from soft_reasoning.schedule.method import Context
from soft_reasoning.task import screen, spread
from soft_reasoning.task.space import TaskSpace
from soft_reasoning.types import Problem


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
    with pytest.raises(OptionError, match="points"):
        spread(rows[:1])
    with pytest.raises(OptionError, match="questions"):
        spread([[1.0], [0.0]])


@pytest.mark.parametrize("limit", [30, 5], ids=["whole texts", "cut texts"])
def test_a_screening_compares_spaces(limit):
    engine = FakeEngine()
    context = Context(engine, Prompts(engine.tokenizer, Wording(ask="{question}\n")), Grader(), seed=0)
    problems = [Problem(f"p{i}", f"What is {i} and {i + 3}?", str(i % 4)) for i in range(12)]
    spaces = {"here": TaskSpace(dim=5), "nearby": TaskSpace(kind="offset", dim=5, scale=1e-3)}
    here, nearby = screen(problems, context, spaces, points=4, max_new_tokens=limit)
    assert (here.name, nearby.name) == ("here", "nearby") and len(here.means) == 4
    assert nearby.changed == 0 and nearby.spread.high == 0, "a tiny offset changes no text"
    assert here.changed > 0
