"""dataset=custom from the command line's options: the columns, the answer type and the choice of rows."""

import json

import pytest

from soft_reasoning.build import build_dataset
from soft_reasoning.config import compose_config

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
        return build_dataset(config).problems(config.seed)

    return problems


@pytest.mark.parametrize(
    ("kind", "column", "more", "gold"),
    [
        ("number", "size", [], "3000"),
        ("boolean", "truth", ["prompt=boolean"], "True"),
        ("choice", "pick", ["dataset.row.choices=options"], "B"),
        ("latex", "formula", [], "x^3"),
        ("text", "name", [], "Row 3"),
        ("text", "null", [], None),
    ],
)
def test_every_answer_type(load, kind, column, more, gold):
    problem = load(f"dataset.answer_type={kind}", f"dataset.row.answer={column}", *more)[3]
    assert (problem.id, problem.answer_type, problem.gold) == ("custom-k3", kind, gold)
    assert problem.question == ("Row 3?\n(A) x\n(B) y" if kind == "choice" else "Row 3?")


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (["limit=3"], "k0 k1 k2"),
        (["limit=0.25"], "k0 k1"),
        (["limit=0.5", "dataset.offset=4"], "k4 k5"),
        (["+dataset.where.truth=true", "limit=2"], "k1 k3"),
    ],
)
def test_the_choice_of_rows(load, chosen, expected):
    ids = [problem.id.removeprefix("custom-") for problem in load("dataset.row.answer=size", *chosen)]
    assert ids == expected.split()


def test_a_seeded_sample(load):
    def sample(*more):
        return [problem.id for problem in load("dataset.row.answer=size", "dataset.sample=random", *more)]

    assert sample("seed=1") == sample("seed=1") != sample("seed=2")
    assert sample("seed=1", "limit=3") == sample("seed=1")[:3]
