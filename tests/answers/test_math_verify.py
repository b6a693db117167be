"""The Math-Verify grader gives what the library gives for the text itself."""

import math_verify
import pytest

from soft_reasoning.answers import MathVerifyGrader
from soft_reasoning.types import Problem, UserError

GRADER = MathVerifyGrader()
TEXTS = [
    "Answer: 18",
    "So it is $\\boxed{18}$.",
    "the answer is 1,234.",
    "Half: $\\frac{1}{2}$",
    "It is $x = 7$",
    "no number",
    "",
    "\\boxed{5} and \\boxed{6}",
    "(1,2)",
    "The answer is 0.50",
]


@pytest.mark.parametrize("text", TEXTS)
def test_it_grades_as_the_library(text):
    answer = GRADER.extract(text, "latex")
    parsed = math_verify.parse(text, parsing_timeout=None)
    assert (answer is None) == (not parsed)
    for gold in ("18", "1234", "\\frac{1}{2}", "x^2+1", "7", "5", "6", "(1,2)", "-4", "3"):
        reference = math_verify.parse(f"${gold}$", parsing_timeout=None)
        expected = math_verify.verify(reference, parsed, timeout_seconds=None)
        assert GRADER.correct(answer, Problem("p", "?", gold, "latex")) == expected


def test_votes_and_equality():
    assert GRADER.vote(["7", "$\\frac{1}{2}$", "0.5", None], "number") == "$\\frac{1}{2}$"
    assert not GRADER.equal(None, "7", "number") and GRADER.correct("7", Problem("p", "?")) is None


def test_other_answers_are_refused():
    with pytest.raises(UserError, match="expected answers of type number or latex, got choice"):
        GRADER.extract("B", "choice")
