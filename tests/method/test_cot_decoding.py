"""CoT-decoding: which first tokens, which tokens are the answer's, and what their confidence decides."""

import pytest

from soft_reasoning.method.cot_decoding import CotDecoding, overlapping_tokens
from soft_reasoning.types import Completion, UserError
from tests.method.scripted import END, PROMPT, TOKENIZER, ScriptedEngine, solve, token

SURE, UNSURE = 0.3, 0.1
"""Delta of the third path of :func:`script`."""


def script(third=SURE):
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
        " So": {" 7": 0.5 + third / 2, " 8": 0.5 - third / 2},
        " So 7": {".": 1.0},
    }


DELTAS = [((0.7 - 0.2) + (0.5 - 0.4) + (0.9 - 0.05)) / 3, 0.6 - 0.4]


@pytest.mark.parametrize(
    ("aggregate", "third", "answer"),
    [
        ("majority", UNSURE, "7"),
        ("delta_sum", SURE, "7"),  # 0.2 + 0.3 against 0.483
        ("delta_sum", UNSURE, "123"),
    ],
)
def test_the_answer_by_hand(aggregate, third, answer):
    method = CotDecoding(paths=4, continuation="greedy", aggregate=aggregate)
    result = solve(method, ScriptedEngine(script(third)))
    assert [c.text for c in result.candidates] == [" We Answer: 123\n", " Let Answer: 7", " So 7.", ""]
    assert [c.answer for c in result.candidates] == ["123", "7", "7", None]
    assert result.answer == answer
    if aggregate != "majority":
        [*deltas, none] = result.trace[0]["deltas"]
        assert deltas == pytest.approx([*DELTAS, third], abs=1e-6) and none is None


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


def test_tokens_of_a_span():
    def tokens(pieces, span):
        ids = tuple(map(token, pieces))
        text = TOKENIZER.decode(ids)
        return overlapping_tokens(span, Completion(ids, (0.0,) * len(ids), text, "eos", 1), TOKENIZER)

    assert tokens([" is", " 12", "."], (4, 6)) == range(1, 2)  # " 12" begins before its number
    assert tokens([" 1", "2", "3", END], (1, 4)) == range(0, 3)
    assert tokens([" 1", "2", "3", END], (2, 3)) == range(1, 2)

    bytes_ = tuple(TOKENIZER.encode("a\u22127", add_special_tokens=False))  # 1, 3 and 1 tokens
    completion = Completion(bytes_, (0.0,) * 5, "a\u22127", "length", 1)
    assert overlapping_tokens((1, 3), completion, TOKENIZER) == range(1, 5)
    assert overlapping_tokens((2, 3), completion, TOKENIZER) == range(4, 5)
    assert overlapping_tokens((0, 1), completion, TOKENIZER) == range(0, 1)


def test_more_paths_than_tokens_are_refused():
    with pytest.raises(UserError, match="paths: expected at most"):
        solve(CotDecoding(paths=10**6), ScriptedEngine({"": {" 7": 1.0}}))
