import json
import math
from dataclasses import replace

import pytest

from soft_reasoning.rewards.coherence import KINDS, coherence
from soft_reasoning.rewards.combine import Reward
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


def test_self_certainty_by_hand():
    """One token of two likeliest at 0.9 and 0.1, then two at 0.5 each: divergences 0.511, 0 and 0."""
    sure = TopLogprobs((0, 1), (math.log(0.9), math.log(0.1)))
    even = TopLogprobs((0, 1), (math.log(0.5), math.log(0.5)))
    logprobs = (math.log(0.9), math.log(0.5), math.log(0.5))
    c = Completion((0, 1, 1), logprobs, "abc", "eos", 1, top_logprobs=(sure, even, even))
    divergence = -math.log(2) - (math.log(0.9) + math.log(0.1)) / 2
    assert coherence(c, "self_certainty") == pytest.approx(divergence / 3 / (1 + divergence / 3))


@pytest.mark.parametrize("kind", ["sum_logprob", "self_certainty"])
def test_tokens_of_probability_zero_give_finite_rewards_and_a_report(kind, run, tmp_path, monkeypatch):
    def impossible(completion, kind):
        none = (-math.inf,) * len(completion.logprobs)
        top = tuple(TopLogprobs((0, 1), (0.0, -math.inf)) for _ in none)
        return coherence(replace(completion, logprobs=none, top_logprobs=top), kind)

    monkeypatch.setattr("soft_reasoning.rewards.combine.coherence", impossible)
    sizes = ("reward.verifier_weight=1e6", "reward.coherence_weight=1e6", f"reward.coherence={kind}")
    where = f"hydra.run.dir={tmp_path / 'run'}"
    done = run("engine=fake", "progress=false", "max_new_tokens=20", "limit=2", *sizes, where)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "run" / "samples.jsonl").read_text().splitlines()
    rewards = [one["reward"] for line in lines for one in json.loads(line)["candidates"]]
    assert len(lines) == 2 and rewards and all(math.isfinite(one) for one in rewards)
