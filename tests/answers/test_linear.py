"""Reading takes linear time, whatever a model wrote."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soft_reasoning.answers import ANSWER_TYPES, MODES, Grader
from soft_reasoning.answers.reading import _read

PIECES = (
    "\n¦ ¦\t¦a¦9¦1,¦$¦-¦1/¦=1¦1=¦9^9¦}¦{¦(¦)¦[¦\"¦'¦.¦*¦_¦`¦½¦²¦是¦1.5e9 ¦1 1/2 ¦1 000 ¦1\n¦- ¦1. "
    "¦1. 5\n¦6:45 ¦x = ¦x + ¦5 - x ¦5 < "
    "¦\\boxed{¦\\boxed{1}¦\\boxed{1} or ¦\\frac{1¦\\frac{1}{2}¦$1$¦\\text{a}¦<<1>>¦####¦#### 5 "
    '¦<answer>¦"answer": ¦"answer": "¦"answer": ['
    "¦Answer: ¦Answer:\n¦answer¦the answer is ¦Answer is 5 ¦Answer: 1=¦Answer: the 5 dogs ¦Question:"
    "¦Answer: Question:¦\nQuestion 2: ¦</think>"
    "¦(A¦ (A)¦A and ¦A, B and ¦A or ¦A: true\n¦Between A and ¦not ¦no, ¦No. ¦yes ¦true or false "
    "¦cannot ¦whether ¦nicht ¦i.e. 5 ¦So 5. "
    "¦She has 5 apples and 3 pears. "
).split("¦")
LONG = 30_000


def seconds(text, answer_type, mode, *, best_of):
    """Processor time of reading and locating, the least of several."""
    times = []
    for _ in range(best_of):
        _read.cache_clear()
        started = time.process_time()
        grader = Grader(extraction=mode)
        grader.extract(text, answer_type), grader.locate(text, answer_type)
        times.append(time.process_time() - started)
    return min(times)


def assert_linear(unit, start, answer_type, mode):
    """Eight times the text may take eight times as long, not 64 times; a wide margin for busy machines."""
    short, long = (start + unit * (n // len(unit)) for n in (LONG // 8, LONG))
    taken = seconds(long, answer_type, mode, best_of=1)
    if taken > 0.1:
        taken = seconds(long, answer_type, mode, best_of=3)
        assert taken < 24 * max(seconds(short, answer_type, mode, best_of=3), 0.002), (unit, taken)
    assert taken < 1, (unit, taken)


@pytest.mark.parametrize("unit", PIECES)
def test_a_loop_of_one_piece(unit):
    for answer_type in ANSWER_TYPES:
        for start in ("", "Answer: "):
            assert_linear(unit, start, answer_type, "flexible")
    assert_linear(unit, "Answer: ", "number", "strict")


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(PIECES), min_size=2, max_size=5).map("".join),
    st.sampled_from(["", "Answer: ", "The answer is ", "x "]),
    st.sampled_from(ANSWER_TYPES),
    st.sampled_from(MODES),
)
def test_a_loop_of_several(unit, start, answer_type, mode):
    assert_linear(unit, start, answer_type, mode)
