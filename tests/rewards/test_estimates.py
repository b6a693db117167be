"""Verdicts pooled by answer: closed forms, rewards in all methods, and verifiers that know nothing."""

import json
import random
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.configuration.build import build_context, build_engine, build_method
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.methods.base import Rounds
from soft_reasoning.rewards.combine import Reward
from soft_reasoning.rewards.estimates import PRIOR, Judged, fit_prior
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.learned import LearnedRule, fit
from soft_reasoning.rewards.verifiers import Verdict
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.search import Stopping
from soft_reasoning.types import Candidate, Problem


def known(*rows):
    """Rows of (answer, verdict)."""
    seen = [
        Candidate("", answer, 0, coherence=0.5, verified=v, reward=(v or 0.0) + 0.5) for answer, v in rows
    ]
    return Judged(seen, [Verdict(tuple(v for _, v in rows))], Grader())


def test_pooled_by_hand():
    seen = known(("18", 0.9), ("9", 0.2), (None, 0.7), ("18.0", 0.5), ("7", None))
    first, second, third = seen.estimates((1.0, 2.0))
    assert (first.answer, first.members) == ("18", (0, 3)) and (first.yes, first.no) == pytest.approx(
        (1.4, 0.6)
    )
    assert first.mean == pytest.approx((1 + 1.4) / (3 + 2))
    assert first.weight == pytest.approx(2 * 2.4 / 2.6)  # odds, with a fitted prior
    assert seen.estimates()[0].weight == pytest.approx(2 * 1.9 / 3)
    assert second.mean == pytest.approx(1.2 / 4) and third.mean == pytest.approx(1 / 3)
    assert seen.pooled_scores((1.0, 2.0)) == pytest.approx([2.4 / 5, 0.3, 0.7, 2.4 / 5, None])


def question(rng):
    """A question whose right answer 0 has a share of its 15 candidates, and the other answers the rest."""
    share = rng.random()
    return [0 if rng.random() < share else rng.randint(1, 4) for _ in range(15)]


def judged(verdict, seed, count):
    """Seeded questions whose candidates ``verdict`` judges by their answers."""
    rng = random.Random(seed)
    return [known(*[(str(answer), verdict(answer, rng)) for answer in question(rng)]) for _ in range(count)]


def accuracy(rule, verdict, seed=0, count=400, prior=None):
    """Share of seeded questions that the rule answers right."""
    final, right = FinalAnswer(rule, prior=prior), 0
    for seen in judged(verdict, seed, count):
        right += final.choose(seen) == "0"
    return right / count


@pytest.mark.parametrize("rule", ["reward_vote", "pooled_vote"])
@pytest.mark.parametrize("said", [1.0, 0.0, 0.3])
def test_a_verifier_that_always_says_the_same_leaves_the_majority(rule, said):
    rng = random.Random(1)
    for _ in range(100):
        seen = known(*[(str(answer), said) for answer in question(rng)])
        votes = [FinalAnswer(name).choose(seen) for name in ("vote", rule)]
        assert votes[0] == votes[1]


def blind(answer, rng):
    return float(rng.random() < 0.5)


def knows(answer, rng):
    return float(rng.random() < (0.9 if answer == 0 else 0.1))


@pytest.mark.parametrize("rule", ["reward_vote", "pooled_vote"])
def test_a_random_verifier_costs_no_more_than_chance(rule):
    majority = accuracy("vote", blind)
    error = (2 * majority * (1 - majority) / 400) ** 0.5
    assert accuracy(rule, blind) > majority - 2 * error


@pytest.mark.parametrize("rule", ["reward_vote", "pooled_vote"])
def test_a_verifier_that_knows_beats_the_majority(rule):
    assert accuracy(rule, knows) > accuracy("vote", knows) + 0.1


def fitted(verdict, file):
    """A calibration file of 100 other questions."""
    rows = [(Problem("p", "?", "0"), seen) for seen in judged(verdict, 1, 100)]
    file.write_text(json.dumps({"final": asdict(fit(rows, {})[0])}))
    return str(file)


def test_a_prior_from_calibration_leaves_the_majority_to_a_coin_and_gains_more_from_what_is_known(tmp_path):
    majority = accuracy("vote", blind, count=1000)
    coin, sure = fitted(blind, tmp_path / "coin"), fitted(knows, tmp_path / "sure")
    assert sum(LearnedRule.load(coin).verdicts) > 20 > 2 > sum(LearnedRule.load(sure).verdicts)
    assert accuracy("pooled_vote", blind, count=1000, prior=coin) > majority - 0.005
    gained = accuracy("pooled_vote", knows, count=1000, prior=sure)
    assert gained > accuracy("pooled_vote", knows, count=1000) + 0.02


@pytest.mark.parametrize("said", [1.0, 0.0, 0.3])
def test_the_prior_of_a_verifier_that_always_says_the_same_leaves_the_majority(said, tmp_path):
    prior = fitted(lambda answer, rng: said, tmp_path / "file")
    final = FinalAnswer("pooled_vote", prior=prior)
    for seen in judged(lambda answer, rng: said, 2, 50):
        assert final.choose(seen) == FinalAnswer("vote").choose(seen)
    assert fit_prior([]) == PRIOR


def test_rewards_read_the_prior_too(tmp_path):
    prior = fitted(knows, tmp_path / "file")
    reward = Reward(pooled=True, prior=prior)
    rounds = Rounds(SimpleNamespace(reward=reward), Problem("p", "?", "1"), SimpleNamespace(grader=Grader()))
    seen = known(("1", 1.0), ("2", 0.0))
    rounds.add(seen.candidates, seen.verdicts[0])
    a, b = LearnedRule.load(prior).verdicts
    assert [c.reward for c in rounds.seen] == pytest.approx(
        [(a + 1) / (a + b + 1) + 0.5, a / (a + b + 1) + 0.5]
    )


@pytest.mark.parametrize("method", ["soft_reasoning", "random_embedding", "verified_sampling", "best_of_n"])
def test_every_method_rewards_all_candidates_by_what_is_known_of_their_answers(method):
    words = [
        "engine=fake",
        f"method={method}",
        "verifier=single_judge",
        "reward.pooled=true",
        "max_new_tokens=30",
    ]
    config = compose_config([*words, *(["search.stopping.rule=none"] if method != "best_of_n" else [])])
    context = build_context(config, build_engine(config))
    [(_, result)] = drive([Problem("p", "How many are 3 x 6?", "18")], build_method(config), context)
    scores = Judged(result.candidates, [], context.grader).pooled_scores()
    for one, score in zip(result.candidates, scores, strict=True):
        assert one.reward == pytest.approx((score or 0.0) + one.coherence)


def test_stopping_by_the_posterior_of_the_leader():
    stopping = Stopping(rule="leader", confidence=0.8)
    seen = known(("1", 0.9), ("1", 0.9), ("2", 0.1))
    leader = FinalAnswer("pooled_vote").leader(seen)
    assert leader == pytest.approx(2.3 / 3)
    assert stopping.reason([[1.0]], leader=leader) is None
    assert stopping.reason([[1.0]], leader=0.85) == "converged"
