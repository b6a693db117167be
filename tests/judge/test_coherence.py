import math
from dataclasses import replace

import pytest

from soft_reasoning.judge.reward import KINDS, Reward, coherence
from soft_reasoning.types import Completion, TopLogprobs, UserError


def completion(*logprobs):
    return Completion(tuple(range(len(logprobs))), logprobs, "", "eos", prompt_tokens=1)


def test_kinds_agree_with_hand_calculation():
    c = completion(math.log(0.5), math.log(0.25))
    assert coherence(c) == pytest.approx(0.375, abs=1e-15)
    assert coherence(c, "sum_logprob") == pytest.approx(math.log(0.125), abs=1e-15)
    assert coherence(c, "mean_logprob") == pytest.approx(math.log(0.125) / 2, abs=1e-15)


def test_an_empty_completion_is_finite():
    assert {kind: coherence(completion(), kind) for kind in KINDS} == dict.fromkeys(KINDS, 0.0)


def test_unknown_kind_names_what_exists():
    with pytest.raises(UserError, match="mean_prob, mean_logprob, sum_logprob"):
        Reward(coherence="perplexity")


def test_the_verifier_decides_and_coherence_breaks_ties():
    reward = Reward()
    assert reward(1.0, 0.0) >= reward(0.0, 1.0)
    assert reward(1.0, 0.9) > reward(1.0, 0.8)


def test_weights_leave_parts_out():
    assert Reward(verifier_weight=0.0)(1.0, 0.3) == 0.3
    assert Reward(coherence_weight=0.0)(1.0, 0.3) == 1.0
    assert Reward()(None, 0.3) == 0.3


def test_a_reward_that_is_always_0_is_refused():
    with pytest.raises(UserError, match="coherence_weight: expected a weight above 0 .*all rewards are 0"):
        Reward(verifier_weight=0.0, coherence_weight=0.0)


def test_self_certainty_by_hand():
    """One token of two likeliest at 0.9 and 0.1, then two at 0.5 each: divergences 0.511, 0 and 0."""
    sure = TopLogprobs((0, 1), (math.log(0.9), math.log(0.1)))
    even = TopLogprobs((0, 1), (math.log(0.5), math.log(0.5)))
    logprobs = (math.log(0.9), math.log(0.5), math.log(0.5))
    c = Completion((0, 1, 1), logprobs, "abc", "eos", 1, top_logprobs=(sure, even, even))
    divergence = -math.log(2) - (math.log(0.9) + math.log(0.1)) / 2
    assert coherence(c, "self_certainty") == pytest.approx(divergence / 3 / (1 + divergence / 3))


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_of_probability_zero_give_finite_rewards(kind):
    top = TopLogprobs((0, 1), (0.0, -math.inf))
    impossible = replace(completion(-math.inf, -math.inf), top_logprobs=(top, top))
    reward = Reward(1e6, 1e6, kind)
    assert math.isfinite(reward(1.0, reward.coherence_of(impossible)))
