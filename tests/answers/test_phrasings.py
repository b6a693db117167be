"""Phrasings of answers, labelled before they were read: how many are right, unread and WRONG.

``phrasings.tsv`` has a line for each: its list, the type, the right answer ("-" where there is nothing to
read) and the text, with ⏎ for a new line. The ``styles`` lists name the style of each text, too.
``rules`` has texts for single rules, all of which must be right. ``development`` and ``held_out`` were in
view while the rules were written. Each other list was scored once before anything was changed for it;
docs/data.md has those scores. A text that can be read in two ways keeps its label and may stay wrong.
For the ``BLIND`` lists no phrasing was added: rules that refuse were, for classes of silent errors.
"""

from collections import defaultdict
from pathlib import Path

import pytest

from soft_reasoning.answers import equal, extract

FILE = Path(__file__).with_name("phrasings.tsv")
ROWS = [line.split("\t") for line in FILE.read_text(encoding="utf-8").splitlines()]
GROUPS = ("rules", "development", "held_out", "fresh", *(f"styles_{i}" for i in range(1, 9)))
LEAST_RIGHT = {"number": 95, "choice": 95, "boolean": 92, "latex": 97, "text": 100}
BLIND = "styles_6", "styles_7", "styles_8"
LEAST_RIGHT_BLIND = {"number": 78, "choice": 90, "boolean": 80, "latex": 97}
MOST_WRONG = {"number": 2, "choice": 2, "boolean": 3, "latex": 2, "text": 0}


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


LISTS = [(g, k) for g in GROUPS for k in LEAST_RIGHT if any(n.startswith(g) and t == k for n, t, *_ in ROWS)]


@pytest.mark.parametrize(("group", "kind"), LISTS)
def test_rates(group, kind):
    if kind == "latex":
        pytest.importorskip("math_verify", reason="the math extra is not installed")
    by_outcome = outcomes(group, kind)
    total = sum(map(len, by_outcome.values()))
    least = 100 if group == "rules" else (LEAST_RIGHT_BLIND if group in BLIND else LEAST_RIGHT)[kind]
    most = 4 if group in BLIND else MOST_WRONG[kind]
    assert len(by_outcome["WRONG"]) * 100 <= most * total, by_outcome["WRONG"]
    assert len(by_outcome["right"]) * 100 >= least * total, by_outcome["WRONG"] + by_outcome["unread"]


def test_every_phrasing_is_labelled_once():
    assert len({(kind, text) for _, kind, _, text in ROWS}) == len(ROWS) >= 1500
