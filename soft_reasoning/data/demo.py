"""The bundled word problems (``soft_reasoning/demo``): ``id``, ``question``, ``answer``, ``difficulty``."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from soft_reasoning.checks import choice
from soft_reasoning.data import fields
from soft_reasoning.data.dataset import Dataset
from soft_reasoning.data.exemplars import Exemplar
from soft_reasoning.data.sources import read_file
from soft_reasoning.demo.problems import SPLIT_SEEDS, make_split
from soft_reasoning.demo.solutions import AUTHORS, equations, write
from soft_reasoning.types import Problem

SPLITS = ("validation", "test")
FOLDER = Path(__file__).parents[1] / "demo"
TRAINING = 2000
"""Training problems where no number is asked for."""


class DemoDataset(Dataset):
    """The bundled problems; training rows are generated on demand."""

    def training(self, seed: int = 0, count: int | None = None) -> list[Exemplar]:
        """Return the first ``count`` problems of the train split, which are the same for every ``seed``.

        None of them is in another split. Each has a correct solution in the style of one of the authors,
        drawn by weight.
        """
        count = TRAINING if count is None else count
        held_out = {
            row.doc["question"] for split in SPLITS for row in read_file(str(FOLDER / f"{split}.jsonl"))
        }
        rng = random.Random(SPLIT_SEEDS["train"])
        rows = []
        for generated in make_split("train", count, exclude=held_out):
            author = rng.choices(AUTHORS, [a.weight for a in AUTHORS])[0]
            steps = equations(generated, frozenset())
            solution = write(steps, author.layout, rng.choice(author.openers), generated.objects)
            thought = solution.body.rpartition("\n")[0]
            rows.append(Exemplar(generated.question, thought, str(solution.answer)))
        return rows


def demo_dataset(split: str = "test", path: str | None = None, **options: Any) -> Dataset:
    """Return the 500 problems of ``split`` ("test" or "validation"), with the difficulties in turn.

    Args:
        split: Which of the two.
        path: Another file of the same layout.
        options: Those of :class:`Dataset`.
    """
    choice("dataset.split", split, SPLITS)
    return DemoDataset(row=problem, path=path or str(FOLDER / f"{split}.jsonl"), **options)


def problem(row: Mapping[str, Any], index: int) -> Problem:
    """Convert a row."""
    gold = fields.canonical_number(fields.text(row, "answer"), "answer")
    return Problem(fields.text(row, "id"), fields.text(row, "question"), gold, "number", row)
