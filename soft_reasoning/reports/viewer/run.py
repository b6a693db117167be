"""The page of a run: every problem with its rounds, candidates, verdicts and final vote."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.reports.tables import Table
from soft_reasoning.reports.viewer.files import Entry, short, write_page
from soft_reasoning.rewards.final import FinalAnswer, count_votes
from soft_reasoning.rewards.history import SearchHistory, stored_verdicts
from soft_reasoning.runs.files import MANIFEST, read_json, read_records
from soft_reasoning.runs.records import read_answers, stored_agreement, stored_candidates, stored_problem
from soft_reasoning.types import Problem, UserError

PER_CANDIDATE = {"mean": "mean", "sd": "sd", "deltas": "delta", "first_tokens": "first"}
"""Lists in a trace's entry with a value per candidate, and the page's names for the values."""


def write_run(
    folder: Path,
    title: str,
    tables: Sequence[Table],
    ids: Collection[str],
    grader: AnswerGrader,
    pictures: Mapping[str, str],
) -> None:
    """Write ``report.html`` of the run in ``folder``, with its ``tables`` and its problems in ``ids``.

    ``pictures`` are files of the folder by title.
    """
    manifest = read_json(folder / MANIFEST)
    config = manifest["config"]
    final = final_rule(config)
    model = (config.get("model") or {}).get("path", "unknown")
    head = {
        "about": [f"model {model}", f"seed {config.get('seed')}", f"grader {grader.name}"],
        "kind": "run", "rule": final and final.rule, "command": manifest["command"],
    }  # fmt: skip
    records = (record for record in read_records(folder) if record["doc_id"] in ids)
    entries = (build_entry(record, grader, final) for record in records)
    write_page(folder, title, head, entries, tables, pictures)


def build_entry(record: Mapping[str, Any], grader: AnswerGrader, final: FinalAnswer | None = None) -> Entry:
    """Return a problem's entry on the page."""
    problem = stored_problem(record)
    answer, answers = read_answers(record, grader)
    right = {parsed: grader.correct(parsed, problem) for parsed in {answer, *answers}}
    detail: dict[str, Any] = {
        "prompt": record.get("prompt") or [problem.question],
        "rounds": _rounds(record, answers, right, grader, problem),
        "votes": _votes(record, grader, final, problem),
        "ended": last_in_trace(record, "ended"),
    }
    row = [
        problem.id, problem.question, problem.gold, answer, right[answer],
        sum(right[parsed] is True for parsed in answers), len(answers), len(detail["rounds"]),
        sum(counts["generated_tokens"] for counts in record["usage"].values()),
        len({*answers} - {None}),
    ]  # fmt: skip
    return row, detail


def last_in_trace(record: Mapping[str, Any], key: str) -> Any:
    """Return the last value of ``key`` in the trace of a record."""
    return next((entry[key] for entry in reversed(record["trace"]) if entry.get(key)), None)


def _rounds(
    record: Mapping[str, Any],
    answers: Sequence[str | None],
    right: Mapping[str | None, bool | None],
    grader: AnswerGrader,
    problem: Problem,
) -> list[dict[str, Any]]:
    traced = {entry["round"]: entry for entry in record["trace"] if "round" in entry}
    rounds: dict[int, dict[str, Any]] = {}
    for candidate, answer, text in zip(record["candidates"], answers, record["resps"][0], strict=True):
        number = candidate["round"]
        entry = traced.get(number, {})
        if number not in rounds:
            rounds[number] = {"round": number, "candidates": [], **_verifier(entry, grader, problem)}
        cards = rounds[number]["candidates"]
        facts = {
            "reward": candidate["reward"], "verified": candidate["verified"],
            "agreement": stored_agreement(candidate), "coherence": candidate["coherence"],
            "tokens": candidate.get("generated_tokens"), "finish": candidate.get("finish_reason") or None,
            **_traced(entry, len(cards)),
        }  # fmt: skip
        shown = {name: short(value) for name, value in facts.items() if value is not None}
        cards.append({"answer": answer, "right": right[answer], "text": text, **shown})
    return [rounds[number] for number in sorted(rounds)]


def _traced(entry: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The values of a round's trace for the candidate at ``index``."""
    lists = {**entry, **(entry.get("proposal") or {})}
    values = {name: column[index] for name, column in lists.items()
              if isinstance(column, list) and index < len(column)}  # fmt: skip
    facts = {title: values.get(name) for name, title in PER_CANDIDATE.items()}
    if parts := (entry.get("verifier") or {}).get("parts"):  # an ensemble's
        facts["parts"] = [[name, said[index]] for name, said in parts.items()]
    if "tokens" in values:
        facts["nearest"] = [row.get("nearest", []) for row in values["tokens"]]
        facts["weights"] = [row["weights"] for row in values["tokens"] if "weights" in row] or None
    return facts


def _verifier(entry: Mapping[str, Any], grader: AnswerGrader, problem: Problem) -> dict[str, Any]:
    verdict = entry.get("verifier") or {}
    if not verdict.get("texts"):
        return {}
    parts = {name: list(verdict.get(name, ())) for name in ("texts", "prompts", "answers", "weights")}
    right = [grader.correct(answer, problem) for answer in parts["answers"]]
    return {"verifier": {**parts, "right": right, "weights": list(map(short, parts["weights"]))}}


def _votes(
    record: Mapping[str, Any], grader: AnswerGrader, final: FinalAnswer | None, problem: Problem
) -> list[dict[str, Any]]:
    """Return the answers as the run read them, by descending weight, each with its voters.

    Weights are None if ``final`` is not known to be a vote over the record's contents.
    """
    chosen, kind = record["answer"], problem.answer_type
    history = SearchHistory(stored_candidates(record), stored_verdicts(record["trace"]), grader, kind)
    return [
        {name: short(value) for name, value in asdict(vote).items()}
        | {"right": grader.correct(vote.answer, problem), "chosen": grader.equal(vote.answer, chosen, kind)}
        for vote in count_votes(history, final)
    ]


def final_rule(config: Mapping[str, Any]) -> FinalAnswer | None:
    """The rule of the run's final answers, if it is a :class:`FinalAnswer`; else None."""
    settings = (config.get("method") or {}).get("final") or {}
    if "rule" not in settings:  # a method without such a rule
        return None
    values = {key: value for key, value in settings.items() if key != "_target_" and value is not None}
    try:
        return FinalAnswer(**values)
    except (TypeError, UserError):  # another class, or a rule of another version
        return None
