"""dataset=custom: columns, values that are missing, and how answers name choices."""

import json
import math

import pytest

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.data.custom import Columns
from soft_reasoning.lab.data.dataset import Dataset
from soft_reasoning.types import UserError


@pytest.mark.parametrize(
    ("kind", "row", "field"),
    [
        ("choice", {"answer": math.nan}, "answer"),
        ("text", {"id": None}, "id"),
        ("choice", {"choices": ["x", None]}, "choices"),
    ],
)
def test_what_is_missing_is_no_answer(kind, row, field):
    doc = {"question": "Which?", "answer": "x", "id": "1", "choices": ["x", "y"]} | row
    with pytest.raises(UserError, match=f"field '{field}'"):
        Columns("question", "answer", id="id", answer_type=kind)(doc, 0)


def choices(tmp_path, *rows, **options):
    """The gold letters of rows (choices, answer)."""
    file = tmp_path / "choices.jsonl"
    file.write_text(
        "".join(json.dumps({"q": f"Q{i}?", "c": c, "a": a}) + "\n" for i, (c, a) in enumerate(rows))
    )
    row = Columns("q", "a", choices="c", answer_type="choice", **options)
    return [
        problem.gold
        for problem in Dataset(name="x", row=row, answer_type="choice", path=str(file)).problems()
    ]


WORDS, NUMBERS = ["red", "blue", "green", "none"], ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("rows", "golds"),
    [
        ([(NUMBERS, 2), (["7", "8", "9"], 0)], ["C", "A"]),  # from 0
        ([(WORDS, 1), (WORDS, 4)], ["A", "D"]),  # from 1
        ([(["B", "A"], "A"), (WORDS, "C")], ["A", "C"]),  # letters
        ([(["B", "A"], "A"), (["D", "C"], "D")], ["B", "A"]),  # texts
        ([({"text": WORDS, "label": NUMBERS}, "2")], ["B"]),  # labels
    ],
)
def test_a_file_names_its_choices_in_one_way(tmp_path, rows, golds):
    assert choices(tmp_path, *rows) == golds


def test_rows_that_disagree_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"line 2: .*by from_0 or from_1, as all rows do, got 'red'"):
        choices(tmp_path, (WORDS, 1), (WORDS, "red"))


def test_a_way_may_be_named(tmp_path):
    assert choices(tmp_path, (NUMBERS, "2"), answer_as="from_0") == ["C"]
    with pytest.raises(UserError, match="by letters.*got '2'"):
        choices(tmp_path, (NUMBERS, "2"), answer_as="letters")


def test_a_column_of_another_name_is_told_how_to_be_named(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("Frage,Antwort\n1 + 2?,3\n", encoding="utf-8")
    with pytest.raises(UserError, match="got Frage, Antwort; name yours, such as dataset.row.question=Frage"):
        build_dataset(compose_config([f"dataset={file}"])).problems()
