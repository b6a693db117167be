"""Power sampling: its chain's distribution is p^alpha, which looks ahead where a low temperature does not."""

import pytest

from soft_reasoning.methods.power_sampling import PowerSampling
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.types import Problem
from tests.methods.scripted import END, ScriptedEngine, context_of

ENDS = [" 1", " 2", " 4", " 5", " 6"]
SCRIPT = {"": {" 7": 0.6, " 3": 0.4}, " 7": dict.fromkeys(ENDS, 0.2), " 3": {" 8": 1.0}}
PROBLEMS = [Problem(f"p{i}", "?") for i in range(400)]


def share_of_threes(method):
    found = [r.candidates[0] for _, r in drive(PROBLEMS, method, context_of(ScriptedEngine(SCRIPT)))]
    return sum(c.text.startswith(" 3") for c in found) / len(found)


def test_without_steps_it_is_a_low_temperature_and_with_steps_p_to_the_power():
    """p^2: 0.16 against 5 * 0.12^2 = 0.072. Token by token it is 0.16 against 0.36."""
    assert share_of_threes(PowerSampling(2.0, blocks=1, steps=0)) == pytest.approx(0.16 / 0.52, abs=0.07)
    assert share_of_threes(PowerSampling(2.0, blocks=1, steps=15)) == pytest.approx(0.16 / 0.232, abs=0.07)
    assert share_of_threes(PowerSampling(1.0, blocks=1, steps=5)) == pytest.approx(0.4, abs=0.07)


def test_solutions_of_different_lengths_weigh_by_their_probability_alone():
    """ " 3" ends at once: p^2 is 0.16 against 0.072 as before, though it has fewer places to be changed."""
    script = SCRIPT | {" 3": {END: 1.0}, **{f" 7{end}": {" 9": 1.0} for end in ENDS}}
    found = drive(PROBLEMS, PowerSampling(2.0, blocks=1, steps=15), context_of(ScriptedEngine(script)))
    threes = sum(r.candidates[0].text == " 3" for _, r in found) / len(PROBLEMS)
    assert threes == pytest.approx(0.16 / 0.232, abs=0.07)


def test_blocks_bound_what_is_written_and_are_continued():
    engine = ScriptedEngine(SCRIPT)
    [(_, result)] = drive(
        PROBLEMS[:1], PowerSampling(blocks=3, steps=2, max_new_tokens=3), context_of(engine)
    )
    assert engine.requests[0].max_new_tokens == 1 and result.trace[0]["steps"] >= 4
    assert result.candidates[0].text in {f" 7{end}" for end in ENDS} | {" 3 8"}
