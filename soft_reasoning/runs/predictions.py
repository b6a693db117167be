"""The answers of a run without reference answers: a CSV file and a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from soft_reasoning.reports.tables import Table
from soft_reasoning.runs.files import PREDICTIONS, read_records, write_text
from soft_reasoning.types import shortened

SHOWN = 20
"""Answers that are printed; the file holds all."""


def write_predictions(folder: Path, ids: Mapping[str, object]) -> list[str]:
    """Write the problems in ``ids`` with their answers to ``predictions.csv``; return lines to print."""
    rows = [
        (one["doc_id"], one["question"], one["answer"])
        for one in read_records(folder)
        if one["doc_id"] in ids
    ]
    cells = [(name, text, "" if answer is None else answer) for name, text, answer in rows]
    write_text(folder / PREDICTIONS, Table(("id", "question", "answer"), cells, labels=3).csv())
    lines = [
        f"{shortened(name)}: {'no answer' if answer is None else answer}" for name, _, answer in rows[:SHOWN]
    ]
    if len(rows) > SHOWN:
        lines.append(f"... and {len(rows) - SHOWN} more")
    return [*lines, f"\n{folder / PREDICTIONS}"]
