"""Which answer is read, and where it stands."""

import pytest

from soft_reasoning.answers import equal, extract, locate
from soft_reasoning.types import UserError

NUMBERS = {
    "Answer: 18": "18",
    "Answer: 18.": "18",
    "Answer: 18.0": "18",
    "Answer: $18.00": "18",
    "Answer: .5": "0.5",
    "Answer: −.5": "-0.5",
    "Answer: -9,867,630": "-9867630",
    "Answer: −$9,867,630.0": "-9867630",
    "Answer: $-\\$5$": "-5",
    "Answer: (−5)": "-5",
    "Answer: = - 5": "-5",
    "Answer: - 5": "-5",
    "\\boxed{- 5}": "-5",
    "\\boxed{-\\,5}": "-5",
    "The answer is:\n- 5 apples": "5",
    "- 5 apples": "5",
    "Answer: negative 7": "-7",
    "Answer:-5": "-5",
    "Answer: US$5": "5",
    "Answer: 12,34,567 rupees": "1234567",
    "Answer: 1\u202f234\u202f567": "1234567",
    "Answer: \\boxed{1{,}234}": "1234",
    "Answer: 1 000 000": "1000000",
    "Answer: 12 345.": "12345",
    "Answer: $12 000 + $20 000 = $32 000 for both": "32000",
    "Hence it is $400 000 - $282 000 = $118 000.": "118000",
    "\\boxed{2\\ 500\\text{ cm}}": "2500",
    "\\boxed{2~500}": "2500",
    "Answer: 3 400 m races": "3",
    "Answer: 1 000 0000": "1",
    "Answer: 100~200 men": "100",
    "Answer: 9,330,000,000,000.5": "9330000000000.5",
    "Answer: 1,2,3": "1",
    "Answer: 50%": "50",
    "Answer: 12.5 percent": "12.5",
    "Answer: 40 km/h": "40",
    "Answer: $5/hour": "5",
    "Answer: 18th": "18",
    "Answer: 3/4 of the pie": "0.75",
    "Answer: 1 1/2": "1.5",
    "Answer: 1 and 1/2 cups": "1.5",
    "Answer: 1½": "1.5",
    "Answer: 1\\frac{1}{2}": "1.5",
    "Answer: -\\dfrac{3}{4}": "-0.75",
    "Answer: \\frac34": "0.75",
    "Answer: 1/3": "0.33333333333333333",
    "Answer: 1.5e6": "1500000",
    "Answer: 2.5E-3": "0.0025",
    "Answer: $3 \\times 10^{-2}$": "0.03",
    "$\\boxed{3.5\\times10^{6}}$": "3500000",
    "so $3\\cdot10^{5}$": "300000",
    "Answer: 4 x 10^6": "4000000",
    "Answer: 10⁶ m²": "1000000",
    "Answer: 2^{10}": "1024",
    "Answer: 5 million": "5000000",
    "Answer: 90^\\circ": "90",
    # chains of equalities: the last; what explains the answer does not count
    "Answer: 10-5=5": "5",
    "Answer: 2 + 3 * 4 = 14 eggs. So x = 20": "14",
    "Answer: 10/4 = 5/2 = 2.5": "2.5",
    "Answer: 10 / 3 ≈ 3.33": "3.33",
    "Answer: 18 = 2 * 9": "18",
    "Answer: 3 = \\frac{10 - 4}{2}": "3",
    "Answer: \\frac{30 \\text{ miles}}{2 \\text{ hours}} = 15": "15",
    "Answer: 60 \\frac{\\text{km}}{\\text{h}}": "60",
    "Answer: by \\frac{a}{b}, 5": "5",
    "Answer: x = 7": "7",
    "Answer: -5 - 3 = -8": "-8",
    "Answer: $9 + 62 + 140 = 211$. So, it weighed": "211",
    "Answer: 20, since 4 * 5 = 20 and 3 * 5 = 15": "20",
    "Answer: 20 (as 4 * 6 = 24)": "20",
    # run-on text, emphasis, restated questions: the first answer
    "Answer: 18The ducks lay 16 eggs": "18",
    "Answer: 18Question: Tom has 5": "18",
    "Answer: 18\n\nQuestion:\nTom has 5 apples. Answer: 5": "18",
    "**Answer:** 18": "18",
    "**Answer**: **18**": "18",
    "Final Answer: 18": "18",
    "Here is my final answer: 18 of 20": "18",
    "the correct answer: 18 of 20": "18",
    "Final answer: 18 of 20": "18",
    "He lost 3 points for every wrong answer: 3 * 4 = 12.\nAnswer: 38": "38",
    "I do not know yet.\nShe makes 18": "18",
    "Answer:\n\n- 18": "18",
    "ANSWER: 18 eggs\nAnswer: 19": "19",  # the last stated answer counts
    # without a marker
    "She makes 9 * 2 = $18 a day.\n#### 18": "18",
    "We get \\boxed{\\frac{7}{2}} from 3 and 4.": "3.5",
    "First \\boxed{5}, {then} \\boxed{\\text{about } {18}}, and \\boxed{9 open": "18",
    "The answer is 18 dollars over 7 days.": "18",
    "She has 5 - 3 = 2 eggs.": "2",
    "She makes <<9*2=18>>18": "18",
    "For the 5-point questions: 3 * 5 = 15. She has 41": "41",
    "So 18 eggs.\n\nQuestion: Tom has 5 apples": "18",
    # nothing to read
    "Answer: 5/0": None,
    "We had 3. Answer: \\frac{5}{0}": None,
    "Answer: 5\\sqrt{2}": None,
    "\\boxed{\\frac{\\sqrt{3}}{2}}": None,
    "\\boxed{\\frac{x}{3}}": None,
    "\\boxed{\\frac{10}{\\sqrt 2}}": None,
    "\\boxed{\\frac{2+3}{5}}": None,
    "\\boxed{2\\frac{x}{3}}": None,
    "So x = \\frac{3\\pi}{4}": None,
    "Answer: 4 of \\frac{1+": "4",
    "Answer: I cannot determine this from 5 apples.": None,
    "I'm sorry, but I can't solve this; there are 5 apples.": None,
    "Answer: unknown": None,
    "Answer: not enough information, only 3 of 4 are given": None,
    "Answer: H2O": None,
    "": None,
}


@pytest.mark.parametrize(("text", "expected"), NUMBERS.items())
def test_numbers(text, expected):
    assert extract(text, "number") == expected


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Answer: Yes.", "True"),
        ("Answer: no", "False"),
        ("Answer: **True**", "True"),
        ("Answer: \\boxed{\\text{No}}", "False"),
        ("Answer: not true", "False"),
        ("Answer: True or False: False", "False"),
        ("Answer: nothing is known about eyes", None),
        ("Answer: I cannot say", None),
        ("There is no evidence against it. So yes.", "True"),
        ("The answer is no.", "False"),
        ("Nobody knows; yesterday was cold.", None),
        ("It is not untrue.", "True"),
        ("The statement cannot be true.", "False"),
        ("It would not be true.", "False"),
        ("It would not be false.", "True"),
        ("It is never true.", "False"),
        ("Answer: It isn't true", "False"),
        ("Answer: It wasn’t really false", "True"),
        ("Answer: can't be false", "True"),
        ("Yes. Answer: This is not necessarily true.", None),
        ("It may not always be true.", None),
        ("He did not exist\nTrue", "True"),
        ("So the claim is False because the opposite is true.", "False"),
        ("It is true, as no one denies. So the claim is false since nobody says it is true.", "False"),
    ],
)
def test_booleans(text, expected):
    assert extract(text, "boolean") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Answer: B", "B"),
        ("Answer: (c)", "C"),
        ("Answer: A. Paris", "A"),
        ("Answer: A dog, so (B)", "B"),
        ("Answer: I think C", "C"),
        ("Answer: \\boxed{\\text{D}}", "D"),
        ("The answer is option b", "B"),
        ("We rule out (A), so it must be (C).", "C"),
        ("I think so", None),
        ('Answer: "A"', "A"),
        ("Answer: `A`", "A"),
        ("Answer: _A_", "A"),
        ("Answer: A - a thing", "A"),
        ("Answer: A is right", "A"),
        ("(A) is wrong. Therefore B is correct.", "B"),
        ("Neither A nor B is correct.", None),
        ("(B) is wrong. Answer: A and C", None),
        ("Answer: A, B and C", None),
        ("Answer: A, since B and C fail", "A"),
    ],
)
def test_choices(text, expected):
    assert extract(text, "choice") == expected


def test_latex_and_text():
    assert extract("Answer: $\\frac{x}{4}$. So it is.", "latex") == "\\frac{x}{4}"
    assert extract("so \\boxed{x^2+\\frac{1}{2}}.", "latex") == "x^2+\\frac{1}{2}"
    assert extract("Nothing here.", "latex") is None
    assert extract('Answer: **"The Nile."** It flows north.', "text") == "The Nile"
    assert extract("Answer: I don't know", "text") is None
    assert equal("The Nile", "nile.", "text") and not equal("Nile", "Niger", "text")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Answer: St. Louis", "St. Louis"),
        ("Answer: Dr. Seuss. He wrote it.", "Dr. Seuss"),
        ("Answer: J. K. Rowling.", "J. K. Rowling"),
        ("Answer: Vitamin C. It is sour.", "Vitamin C"),
        ("Answer: Martin Luther King Jr. He spoke.", "Martin Luther King Jr"),
        ("\\boxed{\\text{Paris}}", "Paris"),
    ],
)
def test_texts(text, expected):
    assert extract(text, "text") == expected


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
    "He lost 8 of 20, so he now has [a dozen].": "number",
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
