"""The page of one run: every problem with its rounds, candidates, verdicts and final vote."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.reports.tables import Table
from soft_reasoning.reports.viewer.files import Entry, short, write_page
from soft_reasoning.rewards.final import FinalAnswer, votes_of
from soft_reasoning.rewards.judged import Judged, verdicts_of
from soft_reasoning.runs.files import read_manifest, read_records
from soft_reasoning.runs.records import read_answers, stored_agreement, stored_candidates, stored_problem
from soft_reasoning.types import Problem, UserError

PER_CANDIDATE = {"mean": "mean", "sd": "sd", "deltas": "delta", "first_tokens": "first"}
"""Lists in a trace's entry with a value per candidate, and the page's name of the value."""


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
    config = read_manifest(folder)["config"]
    final = final_of(config)
    model = (config.get("model") or {}).get("path", "unknown")
    head = {
        "about": [f"model {model}", f"seed {config.get('seed')}", f"grader {grader.name}"],
        "kind": "run", "rule": final and final.rule, "command": config.get("command"),
    }  # fmt: skip
    records = (record for record in read_records(folder) if record["doc_id"] in ids)
    write_page(folder, title, head, (entry_of(record, grader, final) for record in records), tables, pictures)


def entry_of(record: Mapping[str, Any], grader: AnswerGrader, final: FinalAnswer | None = None) -> Entry:
    """What the page shows of a problem."""
    problem = stored_problem(record)
    answer, answers = read_answers(record, grader)
    right = {read: grader.correct(read, problem) for read in {answer, *answers}}
    detail: dict[str, Any] = {
        "prompt": record.get("prompt") or [problem.question],
        "rounds": _rounds(record, answers, right, grader, problem),
        "votes": _votes(record, grader, final, problem),
        "ended": last_of(record, "ended"),
    }
    row = [
        problem.id, problem.question, problem.gold, answer, right[answer],
        sum(right[read] is True for read in answers), len(answers), len(detail["rounds"]),
        sum(counts["generated_tokens"] for counts in record["usage"].values()),
        len({*answers} - {None}),
    ]  # fmt: skip
    return row, detail


def last_of(record: Mapping[str, Any], key: str) -> Any:
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
        known = {name: short(value) for name, value in facts.items() if value is not None}
        cards.append({"answer": answer, "right": right[answer], "text": text, **known})
    return [rounds[number] for number in sorted(rounds)]


def _traced(entry: Mapping[str, Any], place: int) -> dict[str, Any]:
    """What a round's trace says of the candidate at ``place``."""
    lists = {**entry, **(entry.get("proposal") or {})}
    known = {name: values[place] for name, values in lists.items()
             if isinstance(values, list) and place < len(values)}  # fmt: skip
    facts = {title: known.get(name) for name, title in PER_CANDIDATE.items()}
    if "tokens" in known:
        facts["nearest"] = [row.get("nearest", []) for row in known["tokens"]]
        facts["weights"] = [row["weights"] for row in known["tokens"] if "weights" in row] or None
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
    """Return the answers as the run read them, those of most weight first, each with who gave it.

    Weights are None where ``final`` is not known to be a vote over what the record holds.
    """
    chosen, kind = record["answer"], problem.answer_type
    judged = Judged(stored_candidates(record), verdicts_of(record["trace"]), grader, kind)
    return [
        {name: short(value) for name, value in asdict(vote).items()}
        | {"right": grader.correct(vote.answer, problem), "chosen": grader.equal(vote.answer, chosen, kind)}
        for vote in votes_of(judged, final)
    ]


def final_of(config: Mapping[str, Any]) -> FinalAnswer | None:
    """The rule of the run's final answers, where it is one of :class:`FinalAnswer`'s."""
    settings = (config.get("method") or {}).get("final") or {}
    if "rule" not in settings:  # a method without such a rule
        return None
    values = {key: value for key, value in settings.items() if key != "_target_" and value is not None}
    try:
        return FinalAnswer(**values)
    except (TypeError, UserError):  # another class, or a rule of another version
        return None
