"""A stored record under both extractions: what is read again, and from which texts the final answer comes."""

import pytest

from soft_reasoning.answers import Grader, extract
from soft_reasoning.lab.runs.grading import read_answers
from soft_reasoning.lab.runs.records import Record
from soft_reasoning.types import Candidate, Problem, Result

FLEXIBLE, STRICT = Grader(), Grader(extraction="strict")


def stored(texts, answer, *, read=FLEXIBLE, verifier=None, gold="3"):
    """The record of a run under ``read``; ``verifier`` holds what a round's verifier answered and wrote."""
    candidates = [Candidate(text, extract(text, "number", mode=read.extraction), 0) for text in texts]
    trace = ({"round": 0, "verifier": verifier},) if verifier else ({"round": 0},)
    return Record.new(Problem("p", "How many?", gold), Result(answer, tuple(candidates), trace), read)


@pytest.mark.parametrize(
    ("record", "strict", "candidates"),
    [
        (stored(["so 3", "Answer: 3", "Answer: 4"], "3"), "3", [None, "3", "4"]),
        (stored(["so 3", "so 3", "Answer: 4"], "3"), None, [None, None, "4"]),  # nobody takes the place of 3
        (stored(["Answer: 4"], "3", verifier={"answers": ["3"], "texts": ["Answer: 3"]}), "3", ["4"]),
        (stored(["Answer: 4"], "3", verifier={"answers": ["3"], "texts": ["so 3"]}), None, ["4"]),
        (stored(["Answer: 4"], "4", verifier={"answers": [], "texts": ["Correct: 1"]}), "4", ["4"]),
        (stored(["Answer: 4"], "9"), "9", ["4"]),  # no stored text gave it
        (stored([], None), None, []),
    ],
)
def test_a_flexible_run_read_strictly(record, strict, candidates):
    assert record.extraction == "flexible"
    assert read_answers(record, STRICT) == (strict, candidates)
    assert read_answers(record, FLEXIBLE) == (
        record.result.answer,
        [c.answer for c in record.result.candidates],
    )
