"""dataset=custom from the command line's options: the columns, the answer type and the choice of rows."""

import json

import pytest

from soft_reasoning.configuration.build import build_dataset
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.data.exemplars import Exemplar
from soft_reasoning.types import UserError

ROWS = [
    {
        "key": f"k{n}", "q": f"Row {n}?", "truth": bool(n % 2), "size": f"{n},000", "options": ["x", "y"],
        "pick": n % 2, "formula": f"x^{n}", "name": f"Row {n}",
    }
    for n in range(8)
]  # fmt: skip


@pytest.fixture
def load(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")

    def problems(*overrides):
        columns = ["dataset.row.question=q", "dataset.row.id=key"]
        config = compose_config(["dataset=custom", f"dataset.path={file}", *columns, *overrides])
        return build_dataset(config).problems()

    return problems


@pytest.mark.parametrize(
    ("kind", "column", "more", "gold"),
    [
        ("number", "size", [], "3000"),
        ("boolean", "truth", ["prompt=boolean"], "True"),
        ("choice", "pick", ["dataset.row.choices=options", "prompt=choice"], "B"),
        ("latex", "formula", ["prompt=latex"], "x^3"),
        ("text", "name", ["prompt=text"], "Row 3"),
        ("text", "null", ["prompt=text"], None),
    ],
)
def test_every_answer_type(load, kind, column, more, gold):
    problem = load(f"dataset.answer_type={kind}", f"dataset.row.answer={column}", *more)[3]
    assert (problem.id, problem.answer_type, problem.gold) == ("custom-k3", kind, gold)
    assert problem.question == ("Row 3?\n(A) x\n(B) y" if kind == "choice" else "Row 3?")


GOOD = {"question": "Which?", "answer": "x", "id": "1", "choices": ["x", "y"], "other": "z"}
NAN = {
    "an answer": ("text", "answer", "NaN", "answer"),
    "an answer in LaTeX": ("latex", "answer", "NaN", "answer"),
    "an answer that is any text": ("open", "answer", "NaN", "answer"),
    "a number": ("number", "answer", "NaN", "answer"),
    "a truth value": ("boolean", "answer", "NaN", "answer"),
    "a choice": ("choice", "answer", "NaN", "answer"),
    "infinity": ("text", "answer", "Infinity", "answer"),
    "minus infinity": ("text", "answer", "-Infinity", "answer"),
    "a number too large": ("text", "answer", "1e999", "answer"),
    "a question": ("text", "question", "NaN", "question"),
    "an id": ("text", "id", "NaN", "id"),
    "one of the choices": ("choice", "choices", '["x", NaN]', "choices"),
    "a choice that is null": ("choice", "choices", '["x", null]', "choices"),
    "a label": ("choice", "choices", '{"text": ["x", "y"], "label": ["A", NaN]}', "choices"),
    "labels that are null": ("choice", "choices", '{"text": ["x", "y"], "label": [null, "B"]}', "choices"),
    "null": ("text", "answer", "null", "answer"),
}


@pytest.mark.parametrize("name", NAN)
@pytest.mark.parametrize("end", [".jsonl", ".json"])
def test_what_is_missing_is_no_answer(tmp_path, name, end):
    kind, column, value, named = NAN[name]
    fields = {key: json.dumps(text) for key, text in GOOD.items()} | {column: value}
    row = "{" + ", ".join(f'"{key}": {text}' for key, text in fields.items()) + "}"
    file = tmp_path / f"rows{end}"
    file.write_text(row if end == ".jsonl" else f"[{row}]", encoding="utf-8")
    choices = ["dataset.row.choices=choices"] if kind == "choice" else []
    prompt = {"number": "math", "open": "any"}.get(kind, kind)
    config = compose_config(
        ["dataset=custom", f"dataset.path={file}", f"dataset.answer_type={kind}", f"prompt={prompt}",
         "dataset.row.id=id", *choices]
    )  # fmt: skip
    with pytest.raises(UserError) as caught:
        build_dataset(config).problems()
    line = str(caught.value)
    assert str(file) in line and f"field '{named}'" in line and "\n" not in line


def test_a_missing_value_that_is_not_read_is_kept(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"question": "1?", "answer": 2, "note": NaN}', encoding="utf-8")
    config = compose_config(["dataset=custom", f"dataset.path={tmp_path}/rows.jsonl"])
    assert [problem.gold for problem in build_dataset(config).problems()] == ["2"]


def test_training_rows_are_read_like_the_problems(tmp_path):
    rows = [
        {"question": f"Which is {n}?", "choices": ["1", "2", "3"], "answer": n - 1, "thought": f"{n} is {n}."}
        for n in (1, 2, 3)
    ]
    for name, some in (("test", rows[1:2]), ("train", rows)):
        text = "".join(json.dumps(row) + "\n" for row in some)
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    options = [
        "dataset=custom", "dataset.answer_type=choice", "prompt=choice", "dataset.row.choices=choices",
        f"dataset.path={tmp_path}/test.jsonl", f"dataset.train.path={tmp_path}/train.jsonl",
    ]  # fmt: skip
    listed = "\n(A) 1\n(B) 2\n(C) 3"
    assert sorted(build_dataset(compose_config(options)).training(), key=lambda e: e.answer) == [
        Exemplar(f"Which is 1?{listed}", "1 is 1.", "A"), Exemplar(f"Which is 3?{listed}", "3 is 3.", "C")
    ]  # fmt: skip
    with pytest.raises(UserError, match="train.row.answer: expected the name of a column"):
        build_dataset(compose_config([*options, "dataset.row.answer=null"])).training()
