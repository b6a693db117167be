"""FIRE: what an end-of-sequence token leaves that is drawn first."""

from soft_reasoning.method.sampling import SelfConsistency
from tests.method.scripted import END, ScriptedEngine, solve


def fire(**changes):
    """The method of conf/method/fire.yaml."""
    return SelfConsistency(**{"first_temperature": 30.0, "first_top_k": 50} | changes)


def test_a_first_token_that_ends_leaves_an_empty_solution_that_does_not_vote():
    script = {"": {END: 0.5, " We": 0.5}, " We": {" 7": 1.0}}
    result = solve(fire(samples=40), ScriptedEngine(script))
    solutions = {(c.text, c.answer) for c in result.candidates}
    assert solutions == {("", None), (" We 7", "7")} and result.answer == "7"
    assert len(result.candidates) == 40

    result = solve(fire(), ScriptedEngine({"": {END: 1.0}}))
    assert result.answer is None and [c.text for c in result.candidates] == [""] * 5
