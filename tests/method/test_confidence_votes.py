"""Self-certainty, DeepConf, Adaptive-Consistency and ESC against their released rules on the same numbers."""

from collections import Counter

import numpy as np
import pytest
from scipy.integrate import quad

from soft_reasoning.answers import Grader
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine, build_method
from soft_reasoning.judge.final import FinalAnswer, SearchHistory
from soft_reasoning.judge.reward import WINDOW, coherence
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Candidate, Completion, Problem, TopLogprobs

GENERATOR = np.random.default_rng(0)
PROBLEMS = [Problem(f"p{i}", f"What is {i} and {i + 3}?") for i in range(12)]


def scored(count, distinct):
    """Candidates with random answers and rewards."""
    answers, rewards = GENERATOR.integers(distinct, size=count), GENERATOR.exponential(size=count)
    return [Candidate("", str(a), 0, reward=float(r)) for a, r in zip(answers, rewards, strict=True)]


def chosen(final, seen):
    return final.choose(SearchHistory(seen, [], Grader()))


@pytest.mark.parametrize("power", [0.0, 0.5, 2.0])
def test_borda_votes_are_those_of_the_released_code(power):
    final, answers = FinalAnswer("borda", power=power), set()
    for _ in range(50):
        seen, votes = scored(9, 3), Counter()
        for place, candidate in enumerate(sorted(seen, key=lambda c: -c.reward)):
            votes[candidate.answer] += (9 - place) ** power
        best = max(votes.values())
        assert votes[chosen(final, seen)] == pytest.approx(best)
        answers.add(chosen(final, seen) == chosen(FinalAnswer("vote"), seen))
    assert answers == ({True} if power == 0 else {True, False})


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
def test_deepconf_filters_at_the_percentile_and_weighs_by_confidence(keep):
    for count in (1, 5, 12, 20):
        seen = scored(count, 4)
        threshold = np.percentile([c.reward for c in seen], 100 * (1 - keep))
        weights = Counter()
        for candidate in seen:
            weights[candidate.answer] += candidate.reward * (candidate.reward >= threshold)
        assert weights[chosen(FinalAnswer("weighted_vote", keep=keep), seen)] == max(weights.values())


def test_the_confidence_of_a_group_is_its_lowest_sliding_mean():
    rows = [np.log(GENERATOR.dirichlet(np.ones(20))) for _ in range(3 * WINDOW)]
    tops = tuple(TopLogprobs(tuple(range(20)), tuple(row)) for row in rows)
    c = Completion((1,) * len(rows), (0.0,) * len(rows), "", "eos", 1, top_logprobs=tops)
    lowest = np.convolve([-row.mean() for row in rows], np.ones(WINDOW) / WINDOW, "valid").min()
    assert coherence(c, "group_confidence") == pytest.approx(lowest)


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
