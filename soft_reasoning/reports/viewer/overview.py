"""The page of a comparison or a sweep: the same problems side by side, with links into the runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from soft_reasoning.reports.run_groups import RunGroup
from soft_reasoning.reports.tables import Table
from soft_reasoning.reports.viewer.files import Entry, write_page
from soft_reasoning.reports.viewer.run import last_in_trace
from soft_reasoning.runs.files import GRADES, PAGE, read_json, read_records


def write_overview(
    folder: Path,
    title: str,
    tables: Sequence[Table],
    places: Mapping[str, Sequence[RunGroup]],
    pictures: Mapping[str, str],
) -> None:
    """Write ``report.html`` into ``folder``: its ``tables`` and ``pictures``, and each group's problems.

    ``places`` holds settings on the same problems, by a name that distinguishes them on the page.
    """
    columns = {
        name: [
            {"label": group.label, "runs": [_link(run, folder) for run in group.folders]} for group in groups
        ]
        for name, groups in places.items()
    }
    head = {
        "kind": "overview",
        "groups": [{"name": name, "columns": settings} for name, settings in columns.items()],
    }
    entries = (entry for number, groups in enumerate(places.values()) for entry in _entries(number, groups))
    write_page(folder, title, head, entries, tables, pictures)


def _link(run: Path, folder: Path) -> str:
    return quote(Path(os.path.relpath(run, folder)).as_posix()) + f"/{PAGE}"


def _entries(number: int, groups: Sequence[RunGroup]) -> Iterator[Entry]:
    """Yield the problems of a group with each run's outcome (answer, correctness, coverage) and solution.

    Both are None where a run does not have the problem.
    """
    runs = [[_outcomes(run) for run in group.folders] for group in groups]
    names = dict.fromkeys(name for column in runs for run in column for name in run)
    for name in names:
        table = [[run.get(name, (None, None, None)) for run in column] for column in runs]
        question, target = next(question for column in table for question, _, _ in column if question)
        outcomes, texts = ([[run[part] for run in column] for column in table] for part in (1, 2))
        yield [number, name, question, target, outcomes], texts


def _outcomes(run: Path) -> dict[str, tuple[Any, Any, Any]]:
    """Each graded problem of a run by its id: question and target, outcome, and solution."""
    grades = read_json(run / GRADES)
    return {
        record["doc_id"]: (
            (record["question"], record["target"]),
            [record["answer"], grade["correct"], grade["covered"]],
            _solution(record),
        )
        for record in read_records(run)
        if (grade := grades.get(record["doc_id"]))
    }


def _solution(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the first text that gave the final answer, or the first text if none did.

    It is a candidate's text, with its opening and anchor, or else the verifier's.
    """
    texts, prompt = record["resps"][0], record.get("prompt") or []
    # The greedy text that soft tokens replace, if they end the prompt and candidates continue after it.
    anchor = last_in_trace(record, "anchor") if len(prompt) > 1 and not prompt[-1] else None
    candidates = zip(record["candidates"], texts, strict=True)
    solutions = [(c["answer"], text, c.get("opening", ""), anchor) for c, text in candidates]
    for verifier in (entry.get("verifier") or {} for entry in record["trace"]):
        pairs = zip(verifier.get("answers", ()), verifier.get("texts", ()), strict=False)
        solutions += [(answer, text, "", None) for answer, text in pairs]
    matching = [solution for solution in solutions if solution[0] == record["answer"]]
    first = next(iter(matching or solutions), None)
    return first and dict(zip(("text", "opening", "anchor"), first[1:], strict=True))
