"""Power sampling, by a chain and from rollouts: it draws from p^alpha, by hand and on a scripted model."""

import math

import pytest
import torch

from soft_reasoning.methods.since.power_lookahead import PowerLookahead, conditional
from soft_reasoning.methods.since.power_sampling import PowerSampling
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.types import Problem
from tests.methods.scripted import END, ScriptedEngine, context_of, solve

ENDS = [" 1", " 2", " 4", " 5", " 6"]
SCRIPT = {"": {" 7": 0.6, " 3": 0.4}, " 7": dict.fromkeys(ENDS, 0.2), " 3": {" 8": 1.0}}
PROBLEMS = [Problem(f"p{i}", "?") for i in range(400)]


def share_of_threes(method, script=SCRIPT):
    results = drive(PROBLEMS, method, context_of(ScriptedEngine(script)))
    return sum(r.candidates[0].text.startswith(" 3") for _, r in results) / len(PROBLEMS)


def lookahead(**options):
    return PowerLookahead(**{"alpha": 2.0, "candidates": 2, "rollouts": 2, "lookahead": 4} | options)


@pytest.mark.slow
def test_without_steps_it_is_a_low_temperature_and_with_steps_p_to_the_power():
    """p^2: 0.16 against 5 * 0.12^2 = 0.072. Token by token it is 0.16 against 0.36."""
    assert share_of_threes(PowerSampling(2.0, blocks=1, steps=0)) == pytest.approx(0.16 / 0.52, abs=0.07)
    assert share_of_threes(PowerSampling(2.0, blocks=1, steps=15)) == pytest.approx(0.16 / 0.232, abs=0.07)
    assert share_of_threes(PowerSampling(1.0, blocks=1, steps=5)) == pytest.approx(0.4, abs=0.07)


@pytest.mark.slow
def test_solutions_of_different_lengths_weigh_by_their_probability_alone():
    """ " 3" ends at once: p^2 is 0.16 against 0.072 as before, though it has fewer places to be changed."""
    script = SCRIPT | {" 3": {END: 1.0}, **{f" 7{end}": {" 9": 1.0} for end in ENDS}}
    share = share_of_threes(PowerSampling(2.0, blocks=1, steps=15), script)
    assert share == pytest.approx(0.16 / 0.232, abs=0.07)


def test_blocks_bound_what_is_written_and_are_continued():
    engine = ScriptedEngine(SCRIPT)
    result = solve(PowerSampling(blocks=3, steps=2, max_new_tokens=3), engine)
    assert engine.requests[0].max_new_tokens == 1 and result.trace[0]["steps"] >= 4
    assert result.candidates[0].text in {f" 7{end}" for end in ENDS} | {" 3 8"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "share"),
    [({}, 0.16 / 0.232), ({"alpha": 1.0}, 0.4), ({"candidates": 1}, 0.0), ({"alpha": 12.0}, 1.0)],
)
def test_rollouts_draw_from_p_to_the_power(options, share):
    assert share_of_threes(lookahead(**options)) == pytest.approx(share, abs=0.1)


def test_a_token_that_ends_the_solution_has_nothing_after_it():
    share = share_of_threes(lookahead(), SCRIPT | {" 3": {END: 1.0}})
    assert share == pytest.approx(0.16 / 0.232, abs=0.1)


@pytest.mark.slow
def test_the_lookahead_ends_a_rollout_and_the_rollouts_are_counted():
    late = {"": SCRIPT[""], " 7": {" 9": 1.0}, " 7 9": dict.fromkeys(ENDS, 0.2), " 3": {" 8": 1.0}}
    assert share_of_threes(lookahead(lookahead=1), late) == pytest.approx(0.16 / 0.52, abs=0.1)
    assert share_of_threes(lookahead(lookahead=2), late) == pytest.approx(0.16 / 0.232, abs=0.1)
    engine = ScriptedEngine(SCRIPT)
    result = solve(PowerLookahead(candidates=2, rollouts=3, lookahead=4, max_new_tokens=1), engine)
    assert len(engine.requests) == 6 and {r.max_new_tokens for r in engine.requests} == {4}
    assert result.candidates[0].finish_reason == "length" and result.candidates[0].generated_tokens == 1
    engine.context_length = len(engine.requests[0].prompt_ids) + 1  # the prompt and two tokens
    assert solve(lookahead(max_new_tokens=9), engine).candidates[0].generated_tokens == 1


def test_the_jackknife_by_hand():
    """alpha = 2, two tokens of probability 1/2, rollouts of probability (1/2, 1/4) and (1/4, 1/4)."""
    first, rest = torch.tensor([0.5, 0.5]).log(), torch.tensor([[0.5, 0.25], [0.25, 0.25]]).log()
    plain, halves = 0.375 / 0.625, (0.5, 2 / 3)  # of all rollouts; without the first, without the second
    expected = 2 * plain - sum(halves) / 2
    assert conditional(first, rest, 2.0)[0] == pytest.approx(expected)
    assert conditional(first, rest[:, :1], 2.0)[0] == pytest.approx(2 / 3)
    assert math.isclose(float(conditional(first, rest * 40, 4.0).sum()), 1.0)
