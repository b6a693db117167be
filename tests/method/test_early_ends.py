"""Adaptive-Consistency and Early-Stopping Self-Consistency against their released rules on equal numbers."""

from collections import Counter

import numpy as np
import pytest
from scipy.integrate import quad

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine, build_method
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Problem

PROBLEMS = [Problem(f"p{i}", f"What is {i} and {i + 3}?") for i in range(12)]


@pytest.fixture(scope="module")
def engine():
    return build_engine(compose_config(["engine=fake"]))


def solve(engine, *words):
    config = compose_config([*words, "max_new_tokens=16"])
    results = drive(PROBLEMS, build_method(config), build_context(config, engine))
    return {p.id: [c.answer for c in r.candidates] for p, r in results}


def settled(answers):
    """The released criterion: the integral over (1/2, 1) of x^a (1 - x)^b, by quadrature."""
    a, b, *_ = [*(n for _, n in Counter(a for a in answers if a is not None).most_common(2)), 0, 0]
    return np.divide(*(quad(lambda x: x**a * (1 - x) ** b, low, 1)[0] for low in (0.5, 0))) >= 0.8


def test_adaptive_consistency_ends_at_the_first_settled_vote(engine):
    words = ("method=adaptive_consistency", "method.stopping.confidence=0.8", "method.stopping.rounds=19")
    fixed = solve(engine, "method=self_consistency", "k=20", "temperature=0.8")
    lengths = set()
    for name, answers in solve(engine, *words).items():
        end = next((n for n in range(1, 20) if settled(fixed[name][:n])), 20)
        assert answers == fixed[name][:end]  # the same samples as self-consistency, fewer of them
        lengths.add(end)
    assert len(lengths) > 1


def test_early_stopping_ends_at_the_first_window_of_equal_answers(engine):
    words = ("method=early_stopping_consistency", "k=2", "method.stopping.rounds=9")
    fixed = solve(engine, "method=self_consistency", "k=20")
    ends = set()
    for name, answers in solve(engine, *words).items():
        windows = [fixed[name][2 * i : 2 * i + 2] for i in range(10)]
        end = next((i + 1 for i, w in enumerate(windows) if len({*w}) == 1 and w[0] is not None), 10)
        assert answers == fixed[name][: 2 * end]
        ends.add(end)
    assert len(ends) > 1
