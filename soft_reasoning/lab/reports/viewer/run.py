"""The page of a run: every problem with its rounds, candidates, verdicts and final vote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.lab.reports.viewer.files import Entry, short, write_page
from soft_reasoning.lab.runs.records import Outcome, Record, TracedRound, read_records


def write_run(
    folder: Path,
    title: str,
    manifest: Mapping[str, Any],
    grader: str,
    outcomes: Mapping[str, Outcome],
    tables: Sequence[Table],
    pictures: Mapping[str, str],
) -> list[list[Any]]:
    """Write ``report.html`` of the run in ``folder``, and return the rows of its table of problems.

    Args:
        folder: The run's folder.
        title: The page's title.
        manifest: The run's manifest.
        grader: The name of the grader.
        outcomes: The outcomes of the run's problems; other problems are left out.
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
    records = (record for record in read_records(folder) if record.problem.id in outcomes)
    entries = (build_entry(record, outcomes[record.problem.id]) for record in records)
    return write_page(folder, title, head, entries, tables, pictures)


def build_entry(record: Record, outcome: Outcome) -> Entry:
    """Return a problem's entry on the page."""
    problem, result, answers = record.problem, record.result, outcome.candidates
    detail: dict[str, Any] = {
        "prompt": result.prompt or [problem.question],
        "rounds": _rounds(record, outcome),
        "votes": [{name: short(value) for name, value in vars(vote).items()} for vote in outcome.votes],
        "ended": next((traced.ended for traced in reversed(record.rounds) if traced.ended), None),
    }
    row = [
        problem.id,
        problem.question,
        problem.gold,
        outcome.answer,
        outcome.correct,
        sum(right is True for _, right in answers),
        len(answers),
        len(detail["rounds"]),
        sum(usage.generated_tokens for usage in result.usage.values()),
        len({answer for answer, _ in answers} - {None}),
    ]
    return row, detail


def _rounds(record: Record, outcome: Outcome) -> list[dict[str, Any]]:
    traced = {
        entry.number: (entry, right)
        for entry, right in zip(record.rounds, outcome.verifier, strict=True)
        if entry.number is not None
    }
    rounds: dict[int, dict[str, Any]] = {}
    for candidate, (answer, right) in zip(record.result.candidates, outcome.candidates, strict=True):
        number = candidate.round
        entry, verified = traced.get(number, (None, ()))
        if number not in rounds:
            rounds[number] = {"round": number, "candidates": [], **_verifier(entry, verified)}
        cards = rounds[number]["candidates"]
        facts = {
            "reward": candidate.reward,
            "verified": candidate.verified,
            "agreement": candidate.judged,
            "coherence": candidate.coherence,
            "tokens": candidate.generated_tokens,
            "opening": candidate.opening or None,
            "finish": candidate.finish_reason or None,
            **_traced(entry, len(cards)),
        }
        shown = {name: short(value) for name, value in facts.items() if value is not None}
        cards.append({"answer": answer, "right": right, "text": candidate.text, **shown})
    return [rounds[number] for number in sorted(rounds)]


def _traced(entry: TracedRound | None, index: int) -> dict[str, Any]:
    """The values of a round's trace for the candidate at ``index``."""
    if entry is None:
        return {}
    lists = {
        "mean": entry.mean,
        "sd": entry.sd,
        "delta": entry.deltas,
        "first": entry.first_tokens,
        "nearest": entry.nearest,
        "weights": entry.weights,
    }
    return {name: values[index] for name, values in lists.items() if index < len(values)}


def _verifier(entry: TracedRound | None, right: Sequence[bool | None]) -> dict[str, Any]:
    if entry is None or not entry.verdict.texts:
        return {}
    verdict = entry.verdict
    weights = list(map(short, verdict.weights))
    parts = {"texts": verdict.texts, "prompts": verdict.prompts, "answers": verdict.answers}
    return {"verifier": {**parts, "right": right, "weights": weights}}
