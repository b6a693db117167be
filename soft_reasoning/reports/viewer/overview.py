"""The page of a comparison or a sweep: the same problems side by side, with links into the runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from soft_reasoning.reports.cells import Cell
from soft_reasoning.reports.viewer.files import Entry, pictures_of, write_page
from soft_reasoning.reports.viewer.run import anchor_of
from soft_reasoning.runs.files import GRADES, PAGE, read_json, read_records


def write_overview(
    folder: Path,
    title: str,
    tables: Sequence[Mapping[str, Any]],
    groups: Mapping[str, Sequence[Cell]],
    pictures: Mapping[str, str] | None = None,
) -> None:
    """Write ``report.html`` into ``folder``: its ``tables`` and ``pictures``, and each group's problems.

    ``groups`` holds settings on the same problems by what tells them from others on the page.
    """
    head = {
        "kind": "overview",
        "title": title,
        "tables": list(tables),
        "pictures": pictures_of(folder, pictures or {}),
        "groups": [
            {
                "name": name,
                "columns": [
                    {"label": cell.label, "runs": [_link(run, folder) for run in cell.folders]}
                    for cell in cells
                ],
            }
            for name, cells in groups.items()
        ],
    }
    entries = (entry for number, cells in enumerate(groups.values()) for entry in _entries(number, cells))
    write_page(folder, title, head, entries)


def _link(run: Path, folder: Path) -> str:
    return quote(Path(os.path.relpath(run, folder)).as_posix()) + f"/{PAGE}"


def _entries(number: int, cells: Sequence[Cell]) -> Iterator[Entry]:
    """Yield the problems of a group with each run's answer, correctness and coverage, and its solution.

    Both are None where a run does not have the problem.
    """
    runs = [[_outcomes(run) for run in cell.folders] for cell in cells]
    problems: dict[str, list[Any]] = {}
    for column in runs:
        for run in column:
            for name, outcome in run.items():
                problems.setdefault(name, outcome["problem"])
    for name, (question, target) in problems.items():
        outcomes = [[_cell(run.get(name)) for run in column] for column in runs]
        texts = [[run[name]["text"] if name in run else None for run in column] for column in runs]
        yield [number, name, question, target, outcomes], texts


def _cell(outcome: Mapping[str, Any] | None) -> list[Any] | None:
    return None if outcome is None else [outcome["answer"], outcome["correct"], outcome["covered"]]


def _outcomes(run: Path) -> dict[str, dict[str, Any]]:
    """Each graded problem of a run by its id."""
    grades = read_json(run / GRADES)
    records = {record["doc_id"]: record for record in read_records(run) if record["doc_id"] in grades}
    return {
        name: {
            "problem": (record["question"], record["target"]),
            "answer": record["answer"],
            "text": _solution(record),
            **grades[name],
        }
        for name, record in records.items()
    }


def _solution(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the first text that gave the final answer, or the first text if none did.

    It is a candidate's, with its anchor, or else the verifier's.
    """
    texts, anchor = record["resps"][0], anchor_of(record)
    solutions = [(c["answer"], text, anchor) for c, text in zip(record["candidates"], texts, strict=True)]
    for verifier in (entry.get("verifier") or {} for entry in record["trace"]):
        pairs = zip(verifier.get("answers", ()), verifier.get("texts", ()), strict=False)
        solutions += [(answer, text, None) for answer, text in pairs]
    matching = [solution for solution in solutions if solution[0] == record["answer"]]
    if not solutions:
        return None
    _, text, start = (matching or solutions)[0]
    return {"text": text, "anchor": start}
