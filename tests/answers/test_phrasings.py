"""Phrasings of answers, labelled before they were read: how many are right, unread and WRONG.

``phrasings.tsv`` has a line for each: its list, the type, the right answer ("-" where there is nothing to
read) and the text, with ⏎ for a new line. The ``styles`` lists name the style of each text, too.
``rules`` has texts for single rules, all of which must be right. The other lists were in view while
rules were written, but for the ``BLIND`` lists, whose texts no rule was written for. The bounds are what is
measured, with a small margin.
"""

from collections import defaultdict
from pathlib import Path

import pytest

from soft_reasoning.answers import equal, extract

FILE = Path(__file__).with_name("phrasings.tsv")
ROWS = [line.split("\t") for line in FILE.read_text(encoding="utf-8").splitlines()]
GROUPS = ("rules", "development", "held_out", "fresh", *(f"styles_{i}" for i in range(1, 9)))
MARKED = "development", "held_out", "fresh"
BLIND = "styles_6", "styles_7", "styles_8"
LEAST_RIGHT = {"number": 92, "choice": 94, "boolean": 91, "latex": 96}
LEAST_RIGHT_MARKED = {"number": 90, "choice": 96, "boolean": 96}
LEAST_RIGHT_BLIND = {"number": 79, "choice": 95, "boolean": 79, "latex": 97}
MOST_WRONG = {"number": 4, "choice": 5, "boolean": 2, "latex": 3}
MOST_WRONG_MARKED = {"number": 3, "choice": 1, "boolean": 1}
MOST_WRONG_BLIND = {"number": 6, "choice": 2, "boolean": 2, "latex": 2}


def outcome(kind, answer, text):
    read = extract(text.replace("⏎", "\n"), kind)
    if answer == "-":
        return "right" if read is None else "WRONG"
    return "unread" if read is None else "right" if equal(read, answer, kind) else "WRONG"


def outcomes(group, kind):
    by_outcome = defaultdict(list)
    for name, row_kind, answer, text in ROWS:
        if name.startswith(group) and row_kind == kind:
            by_outcome[outcome(kind, answer, text)].append((answer, text))
    return by_outcome


KINDS = {*LEAST_RIGHT, "text"}
LISTS = [(g, k) for g in GROUPS for k in KINDS if any(n.startswith(g) and t == k for n, t, *_ in ROWS)]


@pytest.mark.parametrize(("group", "kind"), sorted(LISTS))
def test_rates(group, kind):
    if kind == "latex":
        pytest.importorskip("math_verify", reason="the math extra is not installed")
    by_outcome = outcomes(group, kind)
    total = sum(map(len, by_outcome.values()))
    if group == "rules":
        least, most = 100, 0
    elif group in MARKED:
        least, most = LEAST_RIGHT_MARKED[kind], MOST_WRONG_MARKED[kind]
    elif group in BLIND:
        least, most = LEAST_RIGHT_BLIND[kind], MOST_WRONG_BLIND[kind]
    else:
        least, most = LEAST_RIGHT[kind], MOST_WRONG[kind]
    assert len(by_outcome["WRONG"]) * 100 <= most * total, by_outcome["WRONG"]
    assert len(by_outcome["right"]) * 100 >= least * total, by_outcome["WRONG"] + by_outcome["unread"]


def test_every_phrasing_is_labelled_once():
    assert len({(kind, text) for _, kind, _, text in ROWS}) == len(ROWS) >= 1500
