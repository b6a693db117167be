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


def test_choices_in_a_column_of_text_are_a_list_in_json(tmp_path):
    assert choices(tmp_path, ('["a", "b"]', "B")) == ["B"]
    assert choices(tmp_path, ('{"text": ["x", "y"], "label": ["B", "C"]}', "C")) == ["B"]


@pytest.mark.parametrize(
    "value",
    ["['a', 'b']", "a|b", "a", "5", '"ab"', "[" * 10**5, '["a"]', {"text": ["a", "b"], "label": ["A"]}]
    + [{"text": ["a", "b"], "label": 5}],
)
def test_choices_that_are_no_list_are_refused_with_their_row(tmp_path, value):
    named = pytest.raises(
        UserError, match=r"line 1: expected 2 to 26 choices in field 'c', .* JSON list, got "
    )
    with named:
        choices(tmp_path, (value, "B"))
    with pytest.raises(UserError, match="expected 2 to 26 choices in field 'choices'"):
        Columns("q", "a", answer_type="choice")({"q": "Which?", "choices": value, "a": "B"}, 0)


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


@pytest.mark.parametrize("gold", ['{"b": [1]}', {"b": [1]}, ' {"b":[1]}\n'])
def test_a_gold_answer_in_json_is_an_object_or_its_text(gold):
    assert Columns("q", "a", answer_type="json")({"q": "Which?", "a": gold}, 0).gold == '{"b": [1]}'


@pytest.mark.parametrize(
    "gold", ["{b: 1}", 5, "5", '{"a": 1} {"b": 1}', "so [1]", {"b": math.nan}, [[1e999]], True]
)
def test_a_gold_answer_that_no_answer_can_equal_is_refused(gold):
    with pytest.raises(UserError, match="expected a JSON object or array in field 'a', got "):
        Columns("q", "a", answer_type="json")({"q": "Which?", "a": gold}, 0)
