"""dataset=custom: columns, values that are missing, and how answers name choices."""

import json
import math

import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.data.custom import Columns
from soft_reasoning.lab.data.dataset import Dataset
from soft_reasoning.lab.data.sources import Row
from soft_reasoning.types import UserError


@pytest.mark.parametrize(
    ("kind", "row", "field"),
    [
        ("choice", {"question": math.nan}, "question"),
        ("choice", {"choices": ["x", None]}, "choices"),
    ],
)
def test_what_is_missing_is_refused(kind, row, field):
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
    with pytest.raises(UserError, match=r"line 2: .*by from_0, got 'red'"):
        choices(tmp_path, (WORDS, 1), (WORDS, "red"), (WORDS, 0))


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


@pytest.mark.parametrize("kind", ["number", "choice", "json"])
@pytest.mark.parametrize("row", [{}, {"a": None}, {"a": ""}, {"a": " "}, {"a": math.nan}])
def test_a_row_without_an_answer_has_no_reference(kind, row):
    columns = Columns("q", "a", answer_type=kind)
    doc = {"q": "Which?", "choices": ["x", "y"], **row}
    graded = {**doc, "a": {"number": "3", "choice": "y", "json": {"b": 1}}[kind]}
    columns = columns.over([Row("row 1", graded), Row("row 2", doc)])
    assert columns(graded, 0).gold is not None and columns(doc, 1).gold is None


def test_a_file_without_the_named_columns_is_refused(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("question,result\n1 + 2?,3\n", encoding="utf-8")
    with pytest.raises(UserError, match="row 1: expected a field 'answer', got question, result; name yours"):
        build_dataset(compose_config([f"dataset={file}"])).problems()
    with pytest.raises(UserError, match=r"expected a field 'number', .* such as dataset\.row\.id=question"):
        options = ["dataset.row.answer=result", "dataset.row.id=number"]
        build_dataset(compose_config([f"dataset={file}", *options])).problems()


@pytest.mark.parametrize(
    ("gold", "answer"),
    [("200 km", "200"), ("$1,200 a day", "1200"), ("3 1/2 cups", "3.5"), ("-4 degrees", "-4"), (7, "7")],
)
def test_a_reference_may_have_a_unit_like_an_answer(gold, answer):
    assert Columns("q", "a")({"q": "How much?", "a": gold}, 0).gold == answer


@pytest.mark.parametrize("gold", ["5 to 6", "2 dozen", "about as much", "3 or 4 km", True])
def test_a_reference_that_no_number_can_equal_is_refused(gold):
    with pytest.raises(UserError, match="expected a number in field 'a', got .*dataset.answer_type=number"):
        Columns("q", "a")({"q": "How much?", "a": gold}, 0)


def test_a_column_id_names_the_rows(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("id,question,answer\nb7,1 + 2?,3\n,2 + 2?,4\n", encoding="utf-8")
    ids = [problem.id for problem in build_dataset(compose_config([f"dataset={file}"])).problems()]
    assert ids == ["custom-b7", "custom-1"]
    file.write_text("id,question,answer\na,1 + 2?,3\na,2 + 2?,4\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"row 2: expected a new id, got 'custom-a' again; .*row\.id=null"):
        build_dataset(compose_config([f"dataset={file}"])).problems()
    numbered = build_dataset(compose_config([f"dataset={file}", "dataset.row.id=null"])).problems()
    assert [problem.id for problem in numbered] == ["custom-0", "custom-1"]


def test_a_date_is_text_that_equals_itself_alone(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("- question: When?\n  answer: 2024-03-05\n", encoding="utf-8")
    [problem] = build_dataset(
        compose_config([f"dataset={file}", "dataset.answer_type=text", "prompt=text"])
    ).problems()
    grader = Grader()
    texts = ["Answer: 2024-03-05.", "Answer: **2024-03-05**", "Answer: March 5, 2024"]
    assert [grader.correct(grader.extract(text, "text"), problem) for text in texts] == [True, True, False]
