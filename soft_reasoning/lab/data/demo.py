"""The bundled word problems (``soft_reasoning/demo``): ``id``, ``question``, ``answer``, ``difficulty``."""

from __future__ import annotations

from typing import Any

from soft_reasoning.checks import choice
from soft_reasoning.engine.paths import DEMO_FOLDER
from soft_reasoning.lab.data import fields
from soft_reasoning.lab.data.dataset import Dataset
from soft_reasoning.lab.data.fields import Doc
from soft_reasoning.types import Problem

SPLITS = ("validation", "test", "train")
FOLDER = DEMO_FOLDER.parent


def demo_dataset(split: str = "test", path: str | None = None, **options: Any) -> Dataset:
    """Return the 500 problems of a split, with the difficulties in turn.

    Args:
        split: "test", "validation" or "train", whose rows are in neither of the others and have solutions.
            "everyday" has 20 problems of another kind, which the bundled model cannot read.
        path: Another file of the same layout.
        options: Options of :class:`Dataset`.
    """
    choice("split", split, (*SPLITS, "everyday"))
    return Dataset(row=problem, path=path or str(FOLDER / f"{split}.jsonl"), **options)


def problem(row: Doc, index: int) -> Problem:
    """Convert a row."""
    gold = fields.canonical_number(fields.text(row, "answer"), "answer")
    name = str(row.get("id") or f"demo-{index}")  # training rows have none
    return Problem(name, fields.text(row, "question"), gold, "number", row)
