"""The page of a run: every problem with its rounds, candidates, verdicts and final vote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.lab.reports.viewer.files import Entry, short, write_page
from soft_reasoning.lab.runs.files import read_records
from soft_reasoning.lab.runs.records import stored_agreement

PER_CANDIDATE = {"mean": "mean", "sd": "sd", "deltas": "delta", "first_tokens": "first"}
"""Lists in a trace's entry with a value per candidate, and the page's names for the values."""


def write_run(
    folder: Path,
    title: str,
    manifest: Mapping[str, Any],
    grader: str,
    grades: Mapping[str, Any],
    tables: Sequence[Table],
    pictures: Mapping[str, str],
) -> list[list[Any]]:
    """Write ``report.html`` of the run in ``folder``, and return the rows of its table of problems.

    Args:
        folder: The run's folder.
        title: The page's title.
        manifest: The run's manifest.
        grader: The name of the grader.
        grades: The content of ``grades.json``; other problems are left out.
        tables: The run's tables.
        pictures: Files of the folder by title.
    """
    config = manifest["config"]
    model = (config.get("model") or {}).get("path", "unknown")
    head = {
        "about": [f"model {model}", f"seed {config.get('seed')}", f"grader {grader}"],
        "rule": ((config.get("method") or {}).get("final") or {}).get("rule"),
        "command": manifest["command"],
    }
    records = (record for record in read_records(folder) if record["doc_id"] in grades)
    entries = (build_entry(record, grades[record["doc_id"]]) for record in records)
    return write_page(folder, title, head, entries, tables, pictures)


def build_entry(record: Mapping[str, Any], grade: Mapping[str, Any]) -> Entry:
    """Return a problem's entry on the page; ``grade`` is its entry in ``grades.json``."""
    answers = grade["candidates"]
    detail: dict[str, Any] = {
        "prompt": record.get("prompt") or [record["question"]],
        "rounds": _rounds(record, grade),
        "votes": [{name: short(value) for name, value in vote.items()} for vote in grade["votes"]],
        "ended": _last_in_trace(record, "ended"),
    }
    row = [
        record["doc_id"],
        record["question"],
        record["target"],
        grade["answer"],
        grade["correct"],
        sum(right is True for _, right in answers),
        len(answers),
        len(detail["rounds"]),
        sum(counts["generated_tokens"] for counts in record["usage"].values()),
        len({answer for answer, _ in answers} - {None}),
    ]
    return row, detail


def _last_in_trace(record: Mapping[str, Any], key: str) -> Any:
    return next((entry[key] for entry in reversed(record["trace"]) if entry.get(key)), None)


def _rounds(record: Mapping[str, Any], grade: Mapping[str, Any]) -> list[dict[str, Any]]:
    traced = {
        entry["round"]: (entry, right)
        for entry, right in zip(record["trace"], grade["verifier"], strict=True)
        if "round" in entry
    }
    rounds: dict[int, dict[str, Any]] = {}
    rows = zip(record["candidates"], grade["candidates"], record["resps"][0], strict=True)
    for candidate, (answer, right), text in rows:
        number = candidate["round"]
        entry, verified = traced.get(number, ({}, ()))
        if number not in rounds:
            rounds[number] = {"round": number, "candidates": [], **_verifier(entry, verified)}
        cards = rounds[number]["candidates"]
        facts = {
            "reward": candidate["reward"],
            "verified": candidate["verified"],
            "agreement": stored_agreement(candidate),
            "coherence": candidate["coherence"],
            "tokens": candidate.get("generated_tokens"),
            "opening": candidate.get("opening") or None,
            "finish": candidate.get("finish_reason") or None,
            **_traced(entry, len(cards)),
        }
        shown = {name: short(value) for name, value in facts.items() if value is not None}
        cards.append({"answer": answer, "right": right, "text": text, **shown})
    return [rounds[number] for number in sorted(rounds)]


def _traced(entry: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The values of a round's trace for the candidate at ``index``."""
    lists = {**entry, **(entry.get("proposal") or {})}
    values = {
        name: column[index]
        for name, column in lists.items()
        if isinstance(column, list) and index < len(column)
    }
    facts = {title: values.get(name) for name, title in PER_CANDIDATE.items()}
    if "tokens" in values:
        facts["nearest"] = [row.get("nearest", []) for row in values["tokens"]]
        facts["weights"] = [row["weights"] for row in values["tokens"] if "weights" in row] or None
    return facts


def _verifier(entry: Mapping[str, Any], right: Sequence[bool | None]) -> dict[str, Any]:
    verdict = entry.get("verifier") or {}
    if not verdict.get("texts"):
        return {}
    parts = {name: list(verdict.get(name, ())) for name in ("texts", "prompts", "answers", "weights")}
    return {"verifier": {**parts, "right": right, "weights": list(map(short, parts["weights"]))}}
