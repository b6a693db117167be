"""The prefix scorer: which block is kept, and where a solution ends."""

import pytest

from experiments.demo.prompts import review_prompt
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context
from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.method.prefix_scorer import PrefixScorer
from soft_reasoning.types import UserError
from tests.method.scripted import END, PROBLEM, TOKENIZER, ScriptedEngine, solve

SCRIPT = {
    "": {" First": 0.4, " We": 0.3, " So": 0.3},
    " First": {" 3": 1.0},
    " We": {" 4": 1.0},
    " So": {" 5": 1.0},
    " We 4": {" is": 0.6, " Now": 0.4},
    " We 4 is": {" 6": 0.7, " 7": 0.3},
    " We 4 is 7": {END: 0.6, " total": 0.4},
}
WORTH = {
    "First 3": 0.2,
    "We 4": 0.9,
    "So 5": 0.4,
    "We 4 is 6": 0.3,
    "We 4 is 7": 0.8,
    "We 4 Now": 0.7,
    "We 4 is 7 total": 0.6,
}


def valued(script=SCRIPT, worth=WORTH):
    """An engine that follows ``script`` and values partial solutions at ``worth``."""
    odds = {f"prefix_right {partial}": {"Yes": v, "No": 1 - v} for partial, v in worth.items()}
    return ScriptedEngine(script | odds)


def test_the_block_of_highest_value_is_kept_each_time():
    engine = valued()
    result = solve(PrefixScorer(candidates=40, block_tokens=2), engine)
    first, second, third = result.trace
    assert {*first["blocks"]} == {" First 3", " We 4", " So 5"}
    assert {*second["blocks"]} == {" is 6", " is 7", " Now"} and {*third["blocks"]} == {"", " total"}
    for entry, before in zip(result.trace, ("", "We 4", "We 4 is 7"), strict=True):
        assert entry["values"] == pytest.approx([WORTH[f"{before}{b}".strip()] for b in entry["blocks"]])
    chosen = [entry["blocks"][entry["chosen"]] for entry in result.trace]
    assert chosen == [" We 4", " is 7", ""]
    asked = [TOKENIZER.decode(request.prompt_ids[2:]) for request in engine.requests[::40]]
    assert asked == ["", " We 4", " We 4 is 7"]
    [candidate] = result.candidates
    assert candidate.text == " We 4 is 7" and candidate.finish_reason == "eos"
    assert candidate.verified == pytest.approx(0.8)
    assert len({request.seed for request in engine.requests}) == len(engine.requests) == 120


def test_a_stop_string_across_two_blocks_ends_the_solution():
    engine = valued(
        {"": {" 7": 1.0}, " 7": {" Question": 1.0}, " 7 Question": {":": 1.0}}, {"7 Question": 0.5, "7": 0.5}
    )
    [candidate] = solve(PrefixScorer(candidates=1, block_tokens=2), engine).candidates
    assert (candidate.text, candidate.finish_reason) == (" 7 ", "stop")


def test_a_prompt_that_fills_the_context_is_an_error():
    engine = valued()
    engine.context_length = 2
    with pytest.raises(UserError, match="expected a prompt shorter than the model's context of 2 tokens"):
        solve(PrefixScorer(), engine)


def test_the_bundled_models_wording_is_that_of_its_training():
    prompts = build_context(compose_config(["prompt=demo"]), FakeEngine()).prompts
    prompt = prompts.task("prefix_right", PROBLEM, partial="First, 1) 2 + 2 = 4.")
    expected = review_prompt(PROBLEM.question, ["First, 1) 2 + 2 = 4."], "Right so far:")
    assert TOKENIZER.decode(prompt.ids[1:]) == expected
