"""Phrasings of answers and what each means, written and labelled before the rules that read them.

``phrasings.jsonl`` is split by its lines: the rules were mended after a look at the half ``seen`` alone, and
of the half ``kept`` only counts were looked at. ``classes.jsonl`` holds the inputs of single faults.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from soft_reasoning.answers import equal, extract

HERE = Path(__file__).parent
FLOORS = {"seen": (1.0, 0.0), "kept": (0.92, 0.01)}
"""The least share that is read rightly, and the largest that is read wrongly."""


def rows(name):
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


def outcome(row):
    """What became of a phrasing: right, unread or wrong."""
    listed = zip("ABCD", row["options"] or (), strict=False)
    question = "\n".join(("Which is it?", *(f"({letter}) {text}" for letter, text in listed)))
    read, meant = extract(row["text"], row["type"], question=question), row["expected"]
    if read is None:
        return "right" if meant is None else "unread"
    return "right" if meant is not None and equal(read, meant, row["type"]) else "wrong"


@pytest.mark.parametrize("half", FLOORS)
def test_phrasings(half):
    phrasings = [row for row in rows("phrasings.jsonl") if row["half"] == half]
    counts = Counter(map(outcome, phrasings))
    right, wrong = FLOORS[half]
    assert len(phrasings) == 165
    assert counts["right"] >= right * len(phrasings) and counts["wrong"] <= wrong * len(phrasings), counts


@pytest.mark.parametrize("row", rows("classes.jsonl"), ids=lambda row: f"{row['kind']}: {row['text'][:40]!r}")
def test_what_a_fault_s_class_holds(row):
    assert outcome(row) == "right"
