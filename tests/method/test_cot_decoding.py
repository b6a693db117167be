"""CoT-decoding: which first tokens are continued, and how the paths vote."""

import pytest

from soft_reasoning.method.cot_decoding import CotDecoding
from soft_reasoning.types import UserError
from tests.method.scripted import END, PROMPT, ScriptedEngine, solve, token


def script():
    return {
        "": {" We": 0.5, " Let": 0.3, " So": 0.15, END: 0.05},
        " We": {" Answer": 1.0},
        " We Answer": {":": 1.0},
        " We Answer:": {" 1": 0.7, " 2": 0.2, " 3": 0.1},
        " We Answer: 1": {"2": 0.5, "3": 0.4, "4": 0.1},
        " We Answer: 12": {"3": 0.9, "4": 0.05, "\n": 0.05},
        " We Answer: 123": {"\n": 0.6, END: 0.4},
        " Let": {" Answer": 1.0},
        " Let Answer": {":": 1.0},
        " Let Answer:": {" 7": 0.6, " 8": 0.4},
        " So": {" 7": 0.6, " 8": 0.4},
        " So 7": {".": 1.0},
    }


def test_the_answer_by_hand():
    method = CotDecoding(paths=4, temperature=0.001)  # the likeliest tokens
    result = solve(method, ScriptedEngine(script()))
    assert [c.text for c in result.candidates] == [" We Answer: 123\n", " Let Answer: 7", " So 7.", ""]
    assert [c.answer for c in result.candidates] == ["123", "7", "7", None]
    assert result.answer == "7"


def test_exactly_the_likeliest_first_tokens_are_continued():
    engine = ScriptedEngine(script())
    result = solve(CotDecoding(paths=3), engine)
    assert [r.prompt_ids for r in engine.requests] == [PROMPT + (token(t),) for t in (" We", " Let", " So")]
    assert len({r.seed for r in engine.requests}) == 3
    for request in engine.requests:
        assert (request.sampling.temperature, request.max_new_tokens) == (0.8, 511)
    assert result.trace[0]["first_tokens"] == [" We", " Let", " So"]


def test_a_stop_string_may_begin_in_the_first_token():
    engine = ScriptedEngine({"": {" Question": 1.0}, " Question": {":": 1.0}, " Question:": {" 7": 1.0}})
    [path] = solve(CotDecoding(paths=1), engine).candidates
    assert (path.text, path.answer, path.finish_reason) == (" ", None, "stop")


def test_more_paths_than_tokens_are_refused():
    with pytest.raises(UserError, match="paths: expected at most"):
        solve(CotDecoding(paths=10**6), ScriptedEngine({"": {" 7": 1.0}}))
