"""The bundled word problems (``soft_reasoning/demo``): ``id``, ``question``, ``answer``, ``difficulty``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from soft_reasoning.data import fields
from soft_reasoning.data.dataset import Dataset
from soft_reasoning.types import Problem, UserError

SPLITS = ("validation", "test")
FOLDER = Path(__file__).parents[1] / "demo"


def demo_dataset(split: str = "test", path: str | None = None, **options: Any) -> Dataset:
    """The 500 problems of ``split``, "test" or "validation", the difficulties in turn; ``path`` reads
    another file of the same layout. ``options`` are those of Dataset."""
    if split not in SPLITS:
        raise UserError(f"dataset.split: expected one of {', '.join(SPLITS)}, got {split!r}")
    return Dataset(row=problem, path=path or str(FOLDER / f"{split}.jsonl"), **options)


def problem(row: Mapping[str, Any], index: int) -> Problem:
    gold = fields.canonical_number(fields.text(row, "answer"), "answer")
    return Problem(fields.text(row, "id"), fields.text(row, "question"), gold, "number", row)
