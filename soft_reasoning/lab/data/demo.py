"""The bundled word problems (``soft_reasoning/demo``): ``id``, ``question``, ``answer``, ``difficulty``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soft_reasoning.checks import choice
from soft_reasoning.engine.paths import DEMO_FOLDER
from soft_reasoning.lab.data import fields
from soft_reasoning.lab.data.custom import ExemplarColumns
from soft_reasoning.lab.data.dataset import Dataset
from soft_reasoning.types import Problem

SPLITS = ("validation", "test")
FOLDER = DEMO_FOLDER.parent


def demo_dataset(split: str = "test", path: str | None = None, **options: Any) -> Dataset:
    """Return the 500 problems of ``split`` ("test" or "validation"), with the difficulties in turn.

    Its 500 training rows, each with a correct solution, are in neither split.

    Args:
        split: "test" or "validation".
        path: Another file of the same layout.
        options: Options of :class:`Dataset`.
    """
    choice("split", split, SPLITS)
    train = {"row": ExemplarColumns("question", "answer"), "path": str(FOLDER / "train.jsonl")}
    return Dataset(row=problem, path=path or str(FOLDER / f"{split}.jsonl"), train=train, **options)


def problem(row: Mapping[str, object], index: int) -> Problem:
    """Convert a row."""
    gold = fields.canonical_number(fields.text(row, "answer"), "answer")
    return Problem(fields.text(row, "id"), fields.text(row, "question"), gold, "number", row)
