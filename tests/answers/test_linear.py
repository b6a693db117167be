"""Reading takes linear time, whatever a model wrote."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soft_reasoning.answers import ANSWER_TYPES, MODES, Grader
from soft_reasoning.answers.reading import _read

# Formatted by hand: 100 pieces of a few letters, grouped.
PIECES = [
    "\n", " ", "\t", "a", "9", "1,", "$", "-", "1/", "=1", "1=", "9^9", "\\boxed{", "\\boxed{1}", "}",
    "{", "\\frac{1",
    "\\frac{1}{2}", "1 000 ", "Answer: ", "Answer:\n", "answer", "the answer is ", "Answer is 5 ",
    "####", "#### 5 ",
    "(A", " (A)", "A and ", "A, B and ", ". ", ".", "not ", "no, ", "No. ", "yes ", "true or false ",
    "Wait, ",
    "Question:", "Answer: Question:", "1\n", "- ", "1. ", "*", "_", "`", "½", "$1$", "\\text{a}",
    "<<1>>", "1.5e9 ",
    "12'345'", "1.234.", "1_000", "five ", "hundred ", "a dozen ", "in 5 ", "so 5 ", "the 3 ", "x = ",
    "(", ")", "[",
    '"', "'", "²", "Answer: 1=", "cannot ", "Answer: the 5 dogs ", "Sorry, ", "1 1/2 ", "whether ",
    "is ", "5-year-old ",
    "She has 5 apples and 3 pears. ",
    "i.e. 5 ", ", so 5 in all ", "I first thought ", "we add 5 ", "25% of 8 ", "so he has none left ",
    "1. 5\n", "So they could ", "the claim does not ", "I do not think it is ", "Between A and ", "A: true\n",
    "~~a", "<del>a", "<answer>", '"answer": ', '"answer": {', "Check: ", "\nCheck: 1\n\n", "\nQuestion 2: ",
    "how many? ", "\nHow many are 5?\n", "May 5, 2024 ", "1,5 ", "1.234,5 ", "6:45 ", "[^1]", "\n[1] a",
    "(1=2, enough) ", "A or ", "vitamin C ", "</think>", "是", "不是，", "nicht ", "yes, but no in ",
    "while ", "; 1=2 ", "some say ", "He was ",
]  # fmt: skip
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


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(PIECES), min_size=2, max_size=5).map("".join),
    st.sampled_from(["", "Answer: ", "The answer is ", "x "]),
    st.sampled_from(ANSWER_TYPES),
    st.sampled_from(MODES),
)
def test_a_loop_of_several(unit, start, answer_type, mode):
    assert_linear(unit, start, answer_type, mode)
