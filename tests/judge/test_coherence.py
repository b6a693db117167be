import math

import pytest

from soft_reasoning.judge.reward import KINDS, Reward, coherence
from soft_reasoning.types import Completion, UserError


def completion(*logprobs):
    return Completion(tuple(range(len(logprobs))), logprobs, "", "eos", prompt_tokens=1)


def test_kinds_agree_with_hand_calculation():
    c = completion(math.log(0.5), math.log(0.25))
    assert coherence(c) == pytest.approx(0.375, abs=1e-15)
    assert coherence(c, "sum_logprob") == pytest.approx(math.log(0.125), abs=1e-15)


def test_an_empty_completion_is_finite():
    assert {kind: coherence(completion(), kind) for kind in KINDS} == dict.fromkeys(KINDS, 0.0)


def test_unknown_kind_names_what_exists():
    with pytest.raises(UserError, match="mean_prob, sum_logprob"):
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


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_of_probability_zero_give_finite_rewards(kind):
    reward = Reward(1e6, 1e6, kind)
    assert math.isfinite(reward(1.0, reward.coherence_of(completion(-math.inf, -math.inf))))
