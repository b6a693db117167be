"""Which answer is read, and where it stands."""

import pytest

from soft_reasoning.answers import equal, extract, locate
from soft_reasoning.types import UserError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Thought. Answer: 18 eggs\nAnswer: 19", "18"),
        ("So she has 18 eggs.", None),
        ("The answer is 18.", None),
        ("\\boxed{18}", None),
        ("Answer:\n18", None),
        ("answer: 18", None),
        ("NoAnswer: 18", None),
        ("Answer: 10-5=5", "5"),
    ],
)
def test_strict_reads_the_marked_line_alone(text, expected):
    assert extract(text, "number", mode="strict") == expected


def test_latex_and_text():
    assert extract("Answer: $\\frac{x}{4}$. So it is.", "latex") == "\\frac{x}{4}"
    assert extract("so \\boxed{x^2+\\frac{1}{2}}.", "latex") == "x^2+\\frac{1}{2}"
    assert extract("Nothing here.", "latex") is None
    assert extract('Answer: **"The Nile."** It flows north.', "text") == "The Nile"
    assert extract("Answer: I don't know", "text") is None
    assert equal("The Nile", "nile.", "text") and not equal("Nile", "Niger", "text")


PLACES = {
    "Answer: [18].": "number",
    "16 - 3 = 13, so 13 * 2 = 26.\nAnswer: $[26.00] a day\nQuestion: 9?": "number",
    "Answer: 10/4 = 5/2 = [2.5]": "number",
    "Answer: [20] eggs, since 4 * 5 = 20": "number",
    "Answer: **[−7]**": "number",
    "Answer: [- 7] of 8": "number",
    "Hence $400 000 - $282 000 = $[118 000].": "number",
    "It is \\boxed{[\\frac{3}{4}]} of 8": "number",
    "The answer is [5 million] of 7": "number",
    "She has 3 + 4 = 7, of which [5] are left.": "number",
    "Ann says yes. Answer: [No], he is": "boolean",
    "First no. So it is [yes].": "boolean",
    "It is true. So it [cannot be true].": "boolean",
    "He died in 1865. So they [could not] have met.": "boolean",
    "That would be a [yes].": "boolean",
    "8 squared, i.e. [64]": "number",
    "I'd pick ([A]) over (B).": "choice",
    "Answer: Definitely ([D])": "choice",
    "\\boxed{[x^{2} + 1]}": "latex",
    "Answer: [New York]. A city.": "text",
    "Answer: [St. Louis]. A city.": "text",
}


@pytest.mark.parametrize(("marked", "answer_type"), PLACES.items())
def test_the_place_of_an_answer(marked, answer_type):
    text = marked.replace("[", "").replace("]", "")
    assert locate(text, answer_type) == (marked.index("["), marked.index("]") - 1)


def test_unknown_answer_type_is_refused():
    with pytest.raises(UserError, match="answer type: expected one of .*got 'integer'"):
        extract("Answer: 1", "integer")
