"""The bundled word problems (``soft_reasoning/demo``)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soft_reasoning.types import Problem, UserError

SPLITS = ("validation", "test")
FOLDER = Path(__file__).parents[1] / "demo"


class DemoDataset:
    """``split`` "test" or "validation", 500 problems each, the difficulties in turn.

    ``limit`` keeps the first problems only: a count, or a fraction below 1.
    """

    answer_type = "number"

    def __init__(self, split: str = "test", limit: int | float | None = None, name: str = "demo"):
        if split not in SPLITS:
            raise UserError(f"dataset.split: expected one of {', '.join(SPLITS)}, got {split!r}")
        if limit is not None and not (limit > 0 and (limit < 1 or limit == int(limit))):
            raise UserError(f"limit: expected a count of at least 1 or a fraction below 1, got {limit}")
        self.name, self.split, self.limit = name, split, limit

    def problems(self, seed: int) -> list[Problem]:
        """The problems in their order; ``seed`` is not used."""
        lines = (FOLDER / f"{self.split}.jsonl").read_text(encoding="utf-8").splitlines()
        problems = [problem_of(json.loads(line)) for line in lines]
        if self.limit is None:
            return problems
        return problems[: math.ceil(self.limit * len(problems)) if self.limit < 1 else int(self.limit)]

    def exemplars(self, seed: int) -> Sequence[Any]:
        """None: the model was trained on its prompts."""
        return ()


def problem_of(row: dict[str, Any]) -> Problem:
    """The problem of a bundled row."""
    return Problem(row["id"], row["question"], row["answer"], "number", row)
