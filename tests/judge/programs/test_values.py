"""What a program's value is as an answer, and that the grader reads it so."""

import math
from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest

from soft_reasoning.answers import Grader, LmEvalGrader, MathVerifyGrader
from soft_reasoning.judge.programs.sandbox import Outcome
from soft_reasoning.judge.programs.writing import KINDS, answer_of, as_answer
from soft_reasoning.judge.released import ReleasedGrader
from soft_reasoning.types import Problem


def question(kind):
    return Problem("p", "Which? (A) one (B) two (C) three", None, kind)


REFUSED = [
    *(None, math.nan, math.inf, -math.inf, 1j, 2 + 0j, 10**100, 10**5000, -(10**200), 1e300),
    *("<function solution at 0x7>", "", " \n", "x" * 201, "x" * 10**6, [3], (3,), {3}, {"a": 3}, b"3"),
    *(Decimal("NaN"), Decimal("sNaN"), Decimal("1e999"), Fraction(1, 3), object(), int),
]


@pytest.mark.parametrize(
    ("value", "number", "boolean", "choice", "text"),
    [
        (42, "42", None, None, "42"),
        (0, "0", None, "A", "0"),
        (26, "26", None, None, "26"),
        (3.0, "3", None, None, "3"),
        (0.1 + 0.2, "0.3", None, None, "0.3"),
        (1e-7, "0.0000001", None, None, "0.0000001"),
        (2.5e20, "250000000000000000000", None, None, "250000000000000000000"),
        (Decimal("12.50"), "12.5", None, None, "12.5"),
        (True, None, "True", None, "True"),
        (False, None, "False", None, "False"),
        ("42 ", "42", None, None, "42"),
        ("b", None, None, "B", "b"),
        ("3½", "3.5", None, None, "3½"),
        ("2 dozen", None, None, None, "2 dozen"),
        ("no", None, "False", None, "no"),
        (date(2020, 1, 31), None, None, None, "2020-01-31"),
        *((value, None, None, None, None) for value in REFUSED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_value_is_an_answer_or_refused(value, number, boolean, choice, text):
    answers = {"number": number, "boolean": boolean, "choice": choice, "text": text}
    assert {kind: as_answer(value, kind) for kind in answers} == answers
    latex = text if isinstance(value, str) else number
    assert set(KINDS) - set(answers) == {"latex"} and as_answer(value, "latex") == latex


@pytest.mark.parametrize(
    "grader",
    [Grader(), Grader(extraction="strict"), ReleasedGrader(), MathVerifyGrader()]
    + [LmEvalGrader(name) for name in ("strict-match", "flexible-extract")],
    ids=lambda grader: grader.name,
)
@pytest.mark.parametrize(
    ("value", "gold"),
    [
        *((15, "15"), (-5, "-5"), (0.75, "0.75"), ("3/4", "0.75"), (3.0, "3"), ("–5", "-5"), (1234, "1,234")),
        *((Decimal("12.50"), "12.5"), ("18 apples", "18"), (1e-5, "0.00001"), ("$1,000", "1000")),
    ],
)
def test_a_value_is_compared_as_such_by_every_grader(grader, value, gold):
    answer, error = answer_of(Outcome(value), question("number"), grader)
    assert error is None and grader.correct(answer, Problem("p", "?", gold)) is True
    assert grader.vote([answer, None, answer], "number") == answer


def test_a_value_that_is_no_answer_is_named():
    error = "expected an answer of type number, got a value of type list"
    assert answer_of(Outcome([1]), question("number"), Grader()) == (None, error)
    assert answer_of(Outcome(error="TypeError: no"), question("number"), Grader()) == (None, "TypeError: no")
