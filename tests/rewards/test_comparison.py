"""Comparisons of two: strengths against closed forms, the tournament, both orders."""

import math

import pytest

from soft_reasoning.rewards.comparison import Comparison, bradley_terry
from soft_reasoning.types import Candidate
from tests.rewards.test_verifiers import run


def answer(value, coherence=0.5):
    return Candidate(f"So it is {value}. Answer: {value}", str(value), 0, coherence=coherence)


def test_strengths_of_two_players():
    first, second = bradley_terry(2, {(0, 1): 3.0, (1, 0): 1.0}, prior=1e-6)
    assert first - second == pytest.approx(math.log(3), abs=1e-3)
    assert bradley_terry(3, {}, prior=0.5) == [0.0, 0.0, 0.0]
    never_beaten = bradley_terry(2, {(0, 1): 5.0, (1, 0): 0.0}, prior=0.5)
    assert 0 < never_beaten[0] < 10


def test_each_pair_meets_in_both_orders_and_the_winner_scores_highest():
    three = [Candidate("I say 18. Answer: 18", "18", 0, coherence=0.4), answer(9), answer(18, 0.9), answer(7)]
    verdict, asked, _ = run(Comparison(rounds=3), *["Answer: 18"] * 20, candidates=three)
    shown = [tuple(texts) for _, texts in asked]
    assert all((b, a) in shown for a, b in shown) and len(set(shown)) == len(shown)
    assert three[0].text not in {
        text for pair in shown for text in pair
    }  # the more coherent one stands for it
    a, b, c, d = verdict.scores
    assert a == c > max(b, d) and verdict.leader is three[2]
    assert len(verdict.prompts) == len(verdict.texts) == len(shown)


def test_a_judge_that_prefers_the_first_one_shown_says_nothing():
    from soft_reasoning.rewards.judgement import NamedChoice
    from soft_reasoning.rewards.verifiers import ModelVerifier

    judge = ModelVerifier("multi_judge", judgement=NamedChoice())
    verdict, _, _ = run(Comparison(judge), *["Correct: 1"] * 9, candidates=[answer(18), answer(9)])
    assert verdict.scores == pytest.approx((0.5, 0.5))


def test_it_stops_when_nobody_can_catch_the_leader_or_no_pair_is_left():
    two = [answer(18), answer(9)]
    verdict, asked, _ = run(Comparison(rounds=9), *["Answer: 18"] * 9, candidates=two)
    assert len(asked) == 2
    alone, asked, _ = run(Comparison(), candidates=[answer(18)])
    assert alone.scores == (0.5,) and not asked
    later, asked, _ = run(Comparison(), *["Answer: 18"] * 9, candidates=[answer(7)], earlier=[verdict])
    assert len(asked) == 2 and later.scores[0] < 0.5 and later.leader is two[0]
