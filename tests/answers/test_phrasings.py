"""Phrasings of answers and what each means, labelled before the rules that read them.

``phrasings.jsonl`` holds texts as models and people write them, ``classes.jsonl`` the inputs of single
faults, most of them written to provoke. A text may stay unread; it is never read wrongly.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from soft_reasoning.answers import equal, extract

HERE = Path(__file__).parent


def outcome(row):
    """What became of a phrasing: right, unread or wrong."""
    listed = zip("ABCD", row["options"] or (), strict=False)
    question = "\n".join(("Which is it?", *(f"({letter}) {text}" for letter, text in listed)))
    read, meant = extract(row["text"], row["type"], question=question), row["expected"]
    if read is None:
        return "right" if meant is None else "unread"
    return "right" if meant is not None and equal(read, meant, row["type"]) else "wrong"


@pytest.mark.parametrize(("name", "least"), [("phrasings.jsonl", 0.69), ("classes.jsonl", 0.62)])
def test_phrasings_are_read_rightly_or_not_at_all(name, least):
    rows = [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]
    assert not [row["text"] for row in rows if outcome(row) == "wrong"]
    assert Counter(map(outcome, rows))["right"] >= least * len(rows)
