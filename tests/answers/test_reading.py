"""What is read, where it stands, and what is not read: one text of each kind."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from soft_reasoning.answers import equal, extract, locate
from soft_reasoning.types import UserError

# Formatted by hand: short cases, several a line.
RIGHT = {
    "number": [
        ("Answer: 18", "18"), ("**Answer:** $18.00 a day", "18"), ("#### 1,234", "1234"),
        ("the answer is 7.", "7"), ("\\boxed{-3}", "-3"), ("\\boxed{\\text{3 eggs}}", "3"),
        ("<answer>\n3\n</answer>", "3"), ("It is <answer>3</answer>.", "3"), ('{"answer": "4.5"}', "4.5"),
        ("Answer:\n12", "12"), ("### Final Answer\n\n12 eggs", "12"), ("Answer: twelve eggs", "12"),
        ("\\boxed{\\frac{-3}{4}}", "-3/4"), ("Answer: \\frac{3}{4}", "3/4"), ("Answer: 1/4 of it", "1/4"),
        ("Answer: 10/4", "10/4"), ("Answer: 6/3", "2"), ("Answer: 3/4 million", "750000"),
        ("Answer: 3/4 (0.75)", "3/4"), ("Answer: 1 1/2 hours", "1.5"), ("Answer: -1½", "-1.5"),
        ("Answer: 10^3", "1000"), ("\\boxed{10^{-2}}", "0.01"), ("Answer: 3 \\times 10^{-2}", "0.03"),
        ("Answer: 1.5e3", "1500"), ("Answer: 2.5 million", "2500000"), ("Answer: 45%", "45"),
        ("Answer: −7", "-7"), ("Answer: -$5", "-5"), ("Answer: 1{,}000", "1000"), ("Answer: 12 000", "12000"),
        ("Answer: 10 cm^2", "10"), ("Answer: 90^\\circ", "90"), ("Answer: $18/hour", "18"),
        ("Answer: 10/4 = 2.5", "2.5"), ("Answer: x = 5", "5"), ("Answer: 13 (16 - 3)", "13"),
        ("Answer: 7 or \\boxed{7}", "7"), ("Answer: 9. That is 3 * 3.", "9"),
        ("Answer:\n5 * 3 = 15\n15 + 2 = 17", "17"), ("Answer: 3\n\nQuestion: And 4?\nAnswer: 9", "3"),
        ("She has 3 * 6 = 18 eggs.\nSo she sells 18.", "18"), ("So 3 boxes hold **18** eggs.", "18"),
        ("3 cost $2, so he pays $6.", "6"), ("It is 30.\n\nNote: This assumes 5 per hour.", "30"),
        ("<think>Answer: 3</think>Answer: 4", "4"),
    ],
    "boolean": [
        ("Answer: True", "True"), ("the answer is **no**.", "False"), ("Yes, he could.", "True"),
        ("Answer: False, since it is not so", "False"), ("So it is false.", "False"),
        ("Answer: T", "True"), ("\\boxed{F}", "False"), ("Answer: not true", "False"),
        ("\\boxed{\\text{Yes}}", "True"), ("Answer: Yes, there is no doubt.", "True"),
        ("No.\nIt is true that birds sing, but not all of them.", "False"),
    ],
    "latex": [
        ("so \\boxed{x^2+\\frac{1}{2}}.", "x^2+\\frac{1}{2}"),
        ("Answer: $\\frac{x}{4}$. So it is.", "\\frac{x}{4}"),
        ("It is $x$, so \\[y + 1\\]", "y + 1"), ("It is $5 \\text{ red apples}$.", "5 \\text{ red apples}"),
    ],
    "text": [
        ('Answer: **"The Nile."** It flows north.', "The Nile"), ("Answer: St. Louis. A city.", "St. Louis"),
        ("Answer: \\text{red}", "red"), ("\\boxed{J. K. Rowling}", "J. K. Rowling"),
        ("<answer>F. Scott Fitzgerald</answer>", "F. Scott Fitzgerald"), ("Answer: B.", "B"),
        ("The answer is C. S. Lewis. He wrote it.", "C. S. Lewis"), ("Answer: Prof. Smith", "Prof. Smith"),
        ("Answer:\nParis", "Paris"), ("<answer>\nParis\r\n</answer>", "Paris"),
    ],
}  # fmt: skip
# Formatted by hand: short cases, grouped by what is wrong with them.
UNREAD = {
    "number": [
        "Answer: none", "It is 12 or 13.", "\\boxed{x = 3, y = 4}",  # no value, two values
        "#### 1. First step", "It is 5 / 2 = $", "She has 5. So she must have", "It is 12: \\boxed",
        "It is 5.\nTherefore,", "It is 5.\nIn all:", "They have \\frac{2", "It is $95,",  # broken off
        "Answer: 1.234,50",  # no US number
        "\\boxed{\\frac{x}{2}}", "Answer: 5/0", "Answer: 1e999", "Answer: 10^2.5",
        "Answer: 110^3", "Answer: 10^3 * 2", "Answer: 2\\frac{-3}{4}", "Answer: -(3, 4)", "Answer: 10^999",
        "Answer: H2O", "Answer: 6:30", "Answer: 2 dozen", "Answer: 21st", "Answer: 4k",  # parts
        "Das sind 1.200 Euro und mehr.", "答案是5",
        "The price of 2 items is 30% of 80", "After 3 days it is 5 more.", "There are 12 eggs in 3 boxes.",
        "The 5 apples are 3 and the rest is 4.", "- pens: 21\n- books: 42",
        "Answer: not 5", "Answer: 5 or more", "Answer: half of 10", "I cannot determine it from 5 eggs.",
    ],
    "boolean": [
        "Answer: True or False", "Answer: not necessarily true", "Answer: maybe", "It depends.",
        "Yes and no: true for some, false for others.", "Answer: 5", "Is it true?",
        "While it is true that some can, others cannot.", "If it were so, the answer would be yes.",
        "Although that is correct, nobody knows.", "He flips the coin. T", "No. So it is true.",
    ],
    "text": ["Answer:", "Nothing here."],
    "latex": ["Nothing here.", "It costs $5 and then $6.", "It is $x = 3$ or $x = -3$."],
}  # fmt: skip
OPTIONS = "Which?\n(A) 2\n(B) London\n(C) New London\n(D) none of the above\n(E) 4 K"
CHOICES = {
    "Answer: B": "B",
    "Answer: **D**": "D",
    "B) London": "B",
    "The correct choice is D: none of the above": "D",
    "Answer: New London": "C",
    "It is London.": "B",
    "Only E fits.": "E",
    "I pick B rather than D.": "B",
    "Answer: D, because B is wrong": "D",
    "Answer: B or C": None,
    "B) none of the above": None,
    "Answer: not B": None,
    "London or 4 K": None,
    "(A) 2\n(B) London\n(C) New London": None,
    "(A) 2\n(B) London\nThe answer is B.": "B",
    "They went to London. Nobody else did.": None,
    "A city": None,
}
MARKS = {
    "box": ("\\boxed{", "}"),
    "hashes": ("#### ", ""),
    "tag": ("<answer>", "</answer>"),
    "key": ('{"answer": "', '"}'),
    "colon": ("Answer: ", ""),
    "sentence": ("So the answer is ", "."),
}
TWO_VALUES = (
    "{}, {} | \\{{{}, {}\\}} | ({},{}) | {} and {} | {} to {} | {}–{} | {} \\pm {} | {} * {} | {}^{}"
    " | x = {} or x = {}"
)
UNEQUAL = (
    "x > {} | x \\le {} | {} < x | {} \\leq x | ±{} | {}! | √{} | \\sqrt{{{}}} | {} \\sqrt{{3}} | {}²"
    " | 2^{{{}}} | {}x | {} \\pi | x + {} | {} - x | \\frac{{x}}{{{}}}"
)
WHOLE = st.integers(0, 10**7)


@pytest.mark.parametrize(
    ("kind", "text", "answer"), [(k, *pair) for k, pairs in RIGHT.items() for pair in pairs]
)
def test_what_is_read(kind, text, answer):
    read = extract(text, kind)
    assert read == answer
    start, end = locate(text, kind)
    assert equal(extract(f"Answer: {text[start:end]}", kind), answer, kind)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in UNREAD.items() for text in texts])
def test_what_is_not_read(kind, text):
    assert extract(text, kind) is None and locate(text, kind) is None


@pytest.mark.parametrize("last", MARKS)
@pytest.mark.parametrize("first", MARKS)
def test_an_unfinished_statement_is_no_answer_and_neither_is_an_earlier_one(first, last):
    (opened, closed), (opens, closes) = MARKS[first], MARKS[last]
    earlier = f"It was {opened}12{closed}.\nThen it must be "
    assert extract(f"{earlier}{opens}345{closes}", "number") == "345"
    for end in range(len(opens.rstrip()), len(opens) + 4):
        assert extract(earlier + f"{opens}345"[:end], "number", cut=True) is None, opens
        assert end > len(opens) or extract(earlier + opens[:end], "number") is None, opens
    kept = None if last == "key" else "345"  # a brace or a tag that nothing closes
    assert extract(f"{earlier}{opens}345", "number") == kept


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("two", TWO_VALUES.split(" | "))
@given(WHOLE, WHOLE)
def test_two_values_are_none(mark, two, a, b):
    opens, closes = MARKS[mark]
    b += a + 1
    assume("{},{}" not in two or len(str(b)) != 3)  # (1,234) is a number as well
    assume("^" not in two or a != 10)  # and so is 10^3
    text = opens + two.format(a, b) + closes
    assert extract(text, "number") is None, text


@pytest.mark.parametrize(
    ("value", "answer"),
    {"1,234": "1234", "12": "12", '"12 eggs"': "12", "(3, 4)": None, '["3", "4"]': None, "[3]": "3"}.items(),
)
def test_the_value_of_a_key(value, answer):
    for rest in ("}", ', "sure": 9}'):
        assert extract(f'{{"answer": {value}{rest}', "number") == answer


@pytest.mark.parametrize("marked", ["Answer: 3", "\\boxed{3}", "The answer is 3."])
def test_a_number_is_contradicted_by_another_conclusion(marked):
    assert extract(f"{marked}\nShe has 2 + 3 eggs.\nSo there are 2 + 3 = 5 eggs.", "number") is None
    assert extract(f"{marked}\nShe has 2 and 1.\nSo there are 2 + 1 = 3 eggs.", "number") == "3"
    assert extract(f"{marked}\nShe sold 2 of 5 eggs.", "number") == "3"


def test_two_boxes_are_two_values():
    assert extract("It is \\boxed{3} or \\boxed{4}.", "number") is None
    assert extract("First \\boxed{3}. Then \\boxed{4}.", "number") == "4"


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("other", UNEQUAL.split(" | "))
@given(WHOLE)
def test_what_is_not_equal_to_its_number_is_none(mark, other, number):
    opens, closes = MARKS[mark]
    text = opens + other.format(number) + closes
    assert extract(text, "number") is None, text


@pytest.mark.parametrize("letter", "ABCDEFKZ")
def test_a_letter_must_be_offered_and_stand_alone(letter):
    offered = letter if letter in "ABCDE" else None
    assert extract(f"Answer: {letter}", "choice", question=OPTIONS) == offered
    for formula in ("{} = ma", "2{}", "{} + B", "{}^2", "3 {}", "E = {}v", "2.5 {}", "v_{}"):
        for text in (f"Answer: B\n\\boxed{{{formula.format(letter)}}}", f"Answer: {formula.format(letter)}"):
            assert extract(text, "choice", question=OPTIONS) is None, text


@pytest.mark.parametrize(("text", "letter"), CHOICES.items())
def test_choices_know_what_is_offered(text, letter):
    assert extract(text, "choice", question=OPTIONS) == letter


@pytest.mark.parametrize(
    "reason", [" because nobody can't", ", since it isn't", " as it never did", ". Maybe not"]
)
@pytest.mark.parametrize("around", ["{}", '"{}"', "**{}**", "'{}'"])
def test_an_option_that_a_reason_follows(around, reason):
    listed = "Could they?\n(A) Yes\n(B) No\n(C) It cannot be known"
    for chosen, letter in (("B", "B"), ("No", "B"), ("Yes", "A"), ("It cannot be known", "C")):
        for mark in ("Answer: ", "The answer is "):
            text = f"{mark}{around.format(chosen)}{reason}"
            assert extract(text, "choice", question=listed) == letter, text
    for unclear in ("not No", "Yes or No, it isn't clear", "Yes is not right", "No because of Yes, it isn't"):
        assert extract(f"Answer: {unclear}", "choice", question=listed) is None, unclear


@pytest.mark.parametrize(
    "listed", ["A) red\nB) blue", "A. red B. blue", "(A) red (B) blue", "A: red\nB: blue"]
)
def test_options_are_read_from_the_question(listed):
    question = f"Is vitamin C in it?\n{listed}"
    assert extract("Answer: blue", "choice", question=question) == "B"
    assert extract("Answer: C", "choice", question=question) is None
    assert extract("Answer: C", "choice") == "C"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Thought. Answer: 18 eggs\nAnswer: 19", "18"),
        ("So she has 18 eggs.", None),
        ("\\boxed{18}", None),
        ("Answer:\n18", None),
        ("NoAnswer: 18", None),
        ("Answer: 10-5=5", "5"),
        ("Answer: \\boxed{5", "5"),
    ],
)
def test_strict_reads_the_marked_line_alone(text, expected):
    assert extract(text, "number", mode="strict") == expected


@pytest.mark.parametrize(
    ("marked", "kind"),
    {
        "Answer: 10/4 = 5/2 = [2.5]": "number",
        "Answer: **[−7]** of them": "number",
        "So $400,000 - $282,000 = $[118,000].": "number",
        "So it is [false].": "boolean",
        "I'd pick ([A]).": "choice",
        "\\boxed{[x^{2} + 1]}": "latex",
        "Answer: [New York]. A city.": "text",
    }.items(),
)
def test_the_place_of_an_answer(marked, kind):
    text = marked.replace("[", "").replace("]", "")
    assert locate(text, kind) == (marked.index("["), marked.index("]") - 1)


def test_unknown_answer_type_is_refused():
    with pytest.raises(UserError, match="answer type: expected one of .*got 'integer'"):
        extract("Answer: 1", "integer")


@pytest.mark.parametrize(
    ("text", "kind", "answer"),
    [
        ("3 * 6 = 18. Answer: 1", "number", None),  # of 18
        ("3 * 6 = 18. Answer: 18 apples", "number", None),  # perhaps of 18 apples and 3 pears
        ("Answer: 18\n", "number", "18"),
        ("Answer: 18\n\nQuestion: What is 3 *", "number", "18"),
        ("She has 3 * 6 = 18 eggs. The rest is 18", "number", None),
        ("Answer: no", "boolean", None),  # of not
        ("Answer: New York", "text", None),
        ('{"a": 1}', "json", '{"a": 1}'),
        ("```python\nx = 1\n```\nThis", "code", "x = 1"),
        ("```python\nx = 1\ny =", "code", None),
        ("Old pon", "open", "Old pon"),
    ],
)
def test_a_text_that_was_cut_has_only_finished_statements(text, kind, answer):
    assert extract(text, kind, cut=True) == answer
    if "Answer: 18" in text:
        assert extract(text, kind, mode="strict", cut=True) == answer
    assert extract(text, kind, cut=False) is not None or kind == "code"
