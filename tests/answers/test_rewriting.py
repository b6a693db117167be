from hypothesis import given
from hypothesis import strategies as st

from soft_reasoning.answers.numerals import clean, find
from soft_reasoning.answers.reader import Rewriter

SHORTEN = Rewriter((r"\*", ""), (r"(\d) thousand", r"\g<1>000"), ("ab", "xyz"))


def test_what_was_removed_at_the_sides_does_not_count():
    text = "ab **3 thousand** c"
    assert SHORTEN(text) == "xyz 3000 c"
    assert text[slice(*SHORTEN.origin(text, 4, 8))] == "3 thousand"
    assert SHORTEN.origin(text, 1, 2) == (0, 2), "what was replaced counts as a whole"


@given(st.text(alphabet="ab*3 thousand", max_size=40))
def test_the_whole_comes_from_the_whole(text):
    start, end = SHORTEN.origin(text, 0, len(SHORTEN(text)))
    assert SHORTEN(text[start:end]) == SHORTEN(text)


def test_numbers_are_found_where_they_stand():
    text = "So −\\frac{3}{4} of **1\u202f000** and 1½"
    places = [text[slice(*clean.origin(text, n.start, n.end))] for n in find(clean(text))]
    assert places == ["−\\frac{3}{4}", "1\u202f000", "1½"]
