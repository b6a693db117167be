"""What holds for any text and any number."""

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from soft_reasoning.answers import ANSWER_TYPES, Grader, LmEvalGrader, equal, extract, locate
from soft_reasoning.answers.number import canonical, value_of
from soft_reasoning.types import Problem

# Formatted by hand: short pieces.
PIECES = st.sampled_from(
    ["Answer:", "answer is", "\\boxed{", "}", "\\frac{1}{", "-", "−", "1", "0", "/", "7,000", "e9", "^", ".",
     "=", "%", "$", " ", "\n", "yes", "no", "(B)", "million", "Question:", "½", "²", "<<", ">>", "x 10^", "√"]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=25).map("".join))
PLAIN_TYPES = [kind for kind in ANSWER_TYPES if kind != "latex"]


@given(TEXTS, st.sampled_from(ANSWER_TYPES), st.sampled_from(["strict", "flexible"]))
@example("Answer:\n1", "text", "flexible")
@example("Answer:\u2028\x1f1", "text", "flexible")
@example("Answer: $\r1$", "latex", "flexible")
def test_extraction_of_anything(text, answer_type, mode):
    answer = extract(text, answer_type, mode=mode)
    assert answer is None or answer == answer.strip() != ""
    place = locate(text, answer_type, mode=mode)
    assert (place is None) == (answer is None)
    if place is not None and answer_type == "number":
        held = text[slice(*place)]
        assert answer in (extract(held, "number"), extract(f"Answer: {held}", "number"))
    if answer is not None and answer_type in ("number", "boolean", "choice"):
        assert extract(f"Answer: {answer}", answer_type, mode=mode) == answer
        assert equal(answer, answer, answer_type)


@given(TEXTS, TEXTS, st.sampled_from(["strict-match", "flexible-extract"]))
def test_the_harness_s_rules_read_anything(text, gold, filter_name):
    grader = LmEvalGrader(filter_name)
    answer, place = grader.extract(text, "number"), grader.locate(text, "number")
    assert answer == (None if place is None else text[slice(*place)])
    assert grader.correct(answer, Problem("p", "?", gold)) in (True, False)


@given(TEXTS, TEXTS, st.sampled_from(PLAIN_TYPES))
def test_equality_is_reflexive_and_symmetric(a, b, answer_type):
    assert equal(a, a, answer_type)
    assert equal(a, b, answer_type) == equal(b, a, answer_type)


DECIMALS = st.decimals(-(10**14), 10**14, places=4).map(Fraction)


@given(st.fractions(max_denominator=997))
def test_canonical_text_keeps_the_value(value):
    text = canonical(value)
    assert "e" not in text.lower() and abs(value_of(text) - value) <= abs(value) * Fraction(1, 10**15)
    assert canonical(value_of(text)) == text


FORMS = ["{}", "${}", "\\${}", "{} apples", "{}%", "**{}**", "\\boxed{{{}}}", "x = {}."]


@given(DECIMALS, st.sampled_from(FORMS))
def test_extraction_recovers_decimals(value, form):
    plain = f"{float(value):,.4f}" if abs(value) < 10**10 else canonical(value)
    if abs(value) < 10**10:
        value = Fraction(plain.replace(",", ""))
    for number in (plain, plain.replace("-", "−")):
        assert extract("We had 3 = 1 + 2.\nAnswer: " + form.format(number), "number") == canonical(value)


@given(st.lists(st.one_of(st.none(), st.integers(-3, 3).map(str)), max_size=12))
def test_vote_is_the_mode(answers):
    winner = Grader().vote(answers, "number")
    held = [answer for answer in answers if answer is not None]
    assert (winner is None) == (not held)
    if held:
        most = max(held.count(answer) for answer in held)
        assert winner == next(answer for answer in held if held.count(answer) == most)
