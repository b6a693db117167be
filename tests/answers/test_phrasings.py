"""Realistic phrasings of answers in the styles of Llama 3, Qwen and Mistral, labelled before they were read.

The rules were written with ``development`` in view, by the author of ``held_out``, so both flatter them. The
``fresh`` ones were written after the rules of their time, and each was scored once before anything was
changed for it:

    list     numbers   booleans  choices
    fresh_1  45 of 50  15 of 20  17 of 20
    fresh_2  41 of 50  18 of 20  19 of 20
    fresh_3  46 of 50
    fresh_4  39 of 40  10 of 10   9 of 10
    fresh_5  54 of 60  16 of 24  23 of 25
    fresh_6  55 of 60  33 of 36  26 of 30
    fresh_7  52 of 60  27 of 36  28 of 30
    fresh_8  39 of 40  29 of 30  24 of 25

So a new list of harder phrasings has about 90 % of its numbers, 80 to 90 % of its booleans and 90 % of its
choices right; of plain ones 95 % and more. Phrasings that could be read in two ways keep their label and may
stay wrong.
"""

import json
import math
from collections import Counter
from pathlib import Path

import pytest

from soft_reasoning.answers import equal, extract

FILE = Path(__file__).with_name("phrasings.jsonl")
ROWS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
SPLITS = sorted({row["split"] for row in ROWS})
LEAST = {"number": 0.95, "choice": 0.95, "boolean": 0.90}


def right(row):
    found = extract(row["text"], row["type"])
    return found is row["answer"] or equal(found, row["answer"], row["type"])


@pytest.mark.parametrize("kind", LEAST)
@pytest.mark.parametrize("split", SPLITS)
def test_phrasings_are_read(kind, split):
    rows = [row for row in ROWS if row["split"] == split and row["type"] == kind]
    missed = [(row["text"], row["answer"]) for row in rows if not right(row)]
    assert len(missed) <= math.floor((1 - LEAST[kind]) * len(rows)), missed


def test_the_list_is_what_it_says():
    assert len({(row["type"], row["text"]) for row in ROWS}) == len(ROWS) >= 400
    assert min(Counter(row["style"] for row in ROWS).values()) > len(ROWS) / 4
