"""Comparing answers, voting and grading."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soft_reasoning.answers import Grader, equal
from soft_reasoning.types import Problem, UserError


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("New  York", "new york", True),
        ("Straße", "STRASSE", True),
        ("cafe", "café", False),
        ("कि", "की", False),  # a vowel sign is a combining mark
    ],
)
def test_text_equality(a, b, same):
    assert equal(a, b, "text") is equal(b, a, "text") is same


LETTERS = st.text(st.characters(categories=["Lu", "Ll", "Lo"]), min_size=1, max_size=5)


@given(LETTERS, st.sampled_from(["NFC", "NFD"]))
def test_text_is_compared_composed_or_not_and_without_case(text, form):
    assert equal(unicodedata.normalize(form, text), text, "text")
    assert equal(text.casefold(), text, "text") and equal(f" {text}\n{text} ", f"{text} {text}", "text")


@given(LETTERS, st.characters(categories=["Mn", "Mc"]) | st.sampled_from("%/+-#€°'"))
def test_marks_and_signs_of_a_text_stay(text, sign):
    assert not equal(text + sign, text, "text")


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("18.0", "18", True),
        ("1,234", "1234", True),
        ("0.333", "0.33333333333333333", True),  # 3.3e-4 apart
        ("0.001", "0.0021", False),
        ("9330000000000", "9330009000000", True),  # within 1e-6
        ("9330000000000", "9330019000000", False),
        ("5", "-5", False),
        ("5", None, False),
        (None, None, False),
    ],
)
def test_number_equality(a, b, same):
    assert equal(a, b, "number") is same
    assert equal(b, a, "number") is same


def test_the_bound_itself_is_within():
    assert equal("0.01", "0", "number", absolute=0.01, relative=0)
    assert not equal("0.0100001", "0", "number", absolute=0.01, relative=0)


def test_votes():
    vote = Grader().vote
    assert vote(["7", "18", None, "18.0"], "number") == "18"
    assert vote(["7", "18"], "number") == "7"
    assert vote(["7", "18"], "number", [0.4, 0.6]) == "18"
    assert vote([None, None], "number") is None
    assert vote([], "boolean") is None
    with pytest.raises(ValueError, match="expected 2 weights"):
        vote(["7", "18"], "number", [1.0])


def test_grader():
    released = Grader(absolute=0.01, relative=0)
    problem = Problem("p", "?", "2.5")
    assert released.correct("2.509", problem) is True and Grader().correct("2.509", problem) is False
    assert Grader().correct(None, problem) is False
    assert Grader().correct("1", Problem("p", "?")) is None
    assert Grader(extraction="strict").extract("so 18", "number") is None


@pytest.mark.parametrize(
    "options", [{"extraction": "lenient"}, {"absolute": -1.0}, {"absolute": True}, {"relative": float("nan")}]
)
def test_bad_settings_are_refused(options):
    with pytest.raises(UserError):
        Grader(**options)
