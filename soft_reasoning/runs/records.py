"""A problem's record, a line of ``samples.jsonl``, with lm-evaluation-harness's names where they exist.

``doc_id``, ``doc``, ``target``, ``resps``, ``filtered_resps`` and ``exact_match`` are the harness's.
``resps[0][i]`` is the text of ``candidates[i]``. ``extraction`` names the way answers were extracted. Every
number keeps its exact value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from soft_reasoning.answers import MODES, AnswerGrader, Grader
from soft_reasoning.thoughts import opened, split
from soft_reasoning.types import Candidate, Problem, Result, Usage, UserError, shortened

FIRST = 5
"""Number of candidates in coverage@5, equal to the samples of the paper's baselines."""

MEMORY = ("kv", "activations")
"""Kinds of an engine's memory beside the weights: keys and values, and everything else."""

WRONG_REASONS = ("uncovered", "rejected", "outvoted")
"""Why final answers are wrong: no candidate is right, the verifier approved no right candidate, or it did and
another answer was chosen."""

DIFFICULTIES = ("easy", "medium", "hard", "expert", "extreme")
"""Names of difficulties, in order."""


def to_record(problem: Problem, result: Result, grader: AnswerGrader) -> dict[str, Any]:
    """The record of a finished problem, in plain values."""
    return {
        "doc_id": problem.id,
        "question": problem.question,
        "answer_type": problem.answer_type,
        "target": problem.gold,
        "extraction": grader.name,
        "answer": result.answer,
        "exact_match": None if (right := grader.correct(result.answer, problem)) is None else float(right),
        "filtered_resps": [result.answer],
        "resps": [[candidate.text for candidate in result.candidates]],
        "candidates": [
            {name: value for name, value in candidate.stored().items() if name != "text"}
            for candidate in result.candidates
        ],
        "prompt": list(result.prompt),
        "trace": list(result.trace),
        "usage": {role: asdict(usage) for role, usage in result.usage.items()},
        "doc": dict(problem.doc),
    }


def stored_problem(record: Mapping[str, Any]) -> Problem:
    """Return the problem of a record."""
    return Problem(
        id=record["doc_id"],
        question=record["question"],
        gold=record["target"],
        answer_type=record["answer_type"],
        doc=record["doc"],
    )


def stored_candidates(record: Mapping[str, Any]) -> list[Candidate]:
    """Return the candidates of a record."""
    candidates = []
    for row, text in zip(record["candidates"], record["resps"][0], strict=True):
        u = row["u"] and tuple(row["u"])
        candidates.append(Candidate(**{**row, "text": text, "u": u}))
    return candidates


def stored_agreement(candidate: Mapping[str, Any]) -> float | None:
    """Return the verifier's score of a record's candidate before confidence; None if it was not judged."""
    agreement = candidate["agreement"]
    return candidate["verified"] if agreement is None else agreement


def read_answers(record: Mapping[str, Any], grader: AnswerGrader) -> tuple[str | None, list[str | None]]:
    """Return the final answer and each candidate's answer, as ``grader`` reads them.

    With the run's extraction these are the stored answers. With another the stored texts are read again. The
    final answer is then the vote of the texts (candidates and verifier's solutions) that gave it, or of all
    texts if there was none. An answer that no stored text gave stays as it is.
    """
    final, kind = record["answer"], record["answer_type"]
    stored = [candidate["answer"] for candidate in record["candidates"]]
    if grader.name == record["extraction"]:
        return final, stored
    question, thinks = record["question"], opened("".join(record["prompt"])) is not None
    parsed = [grader.extract(split(text, thinks)[1], kind, question) for text in record["resps"][0]]
    pairs = [*zip(stored, parsed, strict=True)]
    for verifier in (entry.get("verifier") or {} for entry in record["trace"]):
        # A judge has texts, but no answers.
        solutions = zip(verifier.get("answers", ()), verifier.get("texts", ()), strict=False)
        pairs += [(answer, grader.extract(text, kind, question)) for answer, text in solutions]
    sources = [new for old, new in pairs if final is None or grader.equal(old, final, kind)]
    return (grader.vote(sources, kind) if sources else final), parsed


@dataclass(frozen=True)
class Graded:
    """A graded problem: its rows in the frames from which metrics are computed, and its tokens.

    Values that need a reference answer are None without it.

    Attributes:
        problem: The problem's row: ``doc_id``, ``answer``, ``correct``, ``covered`` (any candidate is right;
            a verifier's solutions do not count), ``covered_first`` (any of the first ``FIRST``), ``parsed``,
            the number of different ``answers`` and of ``rounds``, ``difficulty``, and ``wrong``: an item of
            ``WRONG_REASONS``.
        candidates: A row for each candidate: ``correct``, ``parsed``, ``round``, ``reward``, ``approved`` (by
            the verifier, before its confidence), ``length`` |u|, ``new`` (no earlier candidate had its text),
            and ``expected``: the surrogate's mean at its point before its evaluation.
        readings: A row for each way of extracting answers.
        usage: Tokens by role.
        decided: For each round of proposals, the share that the acquisition function chose.
    """

    problem: Mapping[str, Any]
    candidates: Sequence[Mapping[str, Any]] = ()
    readings: Sequence[Mapping[str, Any]] = ()
    usage: Mapping[str, Usage] = field(default_factory=dict)
    decided: Sequence[float] = ()


def grade(record: Mapping[str, Any], grader: AnswerGrader) -> Graded:
    """Grade the final answer and every candidate of a stored record.

    Raises:
        UserError: If the record lacks a field.
    """
    try:
        return _grade(record, grader)
    except KeyError as error:
        raise UserError(
            f"problem {shortened(str(record.get('doc_id')))}: its line in samples.jsonl was edited, it lacks "
            f"{error}; restore or delete that line, or start over with fresh=true"
        ) from error


def _grade(record: Mapping[str, Any], grader: AnswerGrader) -> Graded:
    problem, (answer, answers) = stored_problem(record), read_answers(record, grader)
    correct, difficulty = grader.correct(answer, problem), problem.doc.get("difficulty")
    texts, candidates = record["resps"][0], list[dict[str, Any]]()
    proposals = [entry.get("proposal") or {} for entry in record["trace"]]
    means = [iter(proposal.get("mean", ())) for proposal in proposals]
    for i, (parsed, stored) in enumerate(zip(answers, record["candidates"], strict=True)):
        number, agreement = stored["round"], stored_agreement(stored)
        row = {
            "correct": grader.correct(parsed, problem),
            "parsed": parsed is not None,
            "round": number,
            "reward": stored["reward"],
            "approved": None if agreement is None else agreement >= 0.5,
            "length": None if stored["u"] is None else math.hypot(*stored["u"]),
            "new": texts[i] not in texts[:i],
            "expected": next(means[number], None) if number < len(means) else None,
        }
        candidates.append(row)
    approvals = [candidate["approved"] for candidate in candidates if candidate["correct"]]
    wrong = None
    if correct is False:
        reason = "rejected" if all(approved is False for approved in approvals) else "outvoted"
        wrong = reason if approvals else "uncovered"
    return Graded(
        problem={
            "doc_id": problem.id,
            "answer": answer,
            "correct": correct,
            "covered": bool(approvals),
            "covered_first": any(candidate["correct"] for candidate in candidates[:FIRST]),
            "parsed": answer is not None,
            "answers": len({*answers} - {None}),
            "rounds": 1 + max((candidate["round"] for candidate in candidates), default=-1),
            "difficulty": None if difficulty is None else str(difficulty),
            "wrong": wrong,
        },
        candidates=candidates,
        readings=[_reading(record, mode_grader) for mode_grader in _graders_by_mode(grader)],
        usage={role: Usage(**counts) for role, counts in record["usage"].items()},
        decided=[proposal["decided"] for proposal in proposals if "decided" in proposal],
    )


def _graders_by_mode(grader: AnswerGrader) -> list[AnswerGrader]:
    """The package's grader in each mode, with the tolerances of ``grader``; then ``grader`` if custom."""
    base = grader if isinstance(grader, Grader) else Grader()
    graders: list[AnswerGrader] = [Grader(base.absolute, base.relative, mode, base.same) for mode in MODES]
    return graders if grader.name in MODES else [*graders, grader]


def _reading(record: Mapping[str, Any], grader: AnswerGrader) -> dict[str, Any]:
    problem, (answer, answers) = stored_problem(record), read_answers(record, grader)
    return {
        "mode": grader.name,
        "correct": grader.correct(answer, problem),
        "covered": None if problem.gold is None else any(grader.correct(a, problem) for a in answers),
        "parsed": answer is not None,
        "candidates": len(answers),
        "candidates_parsed": len(answers) - answers.count(None),
    }


def difficulty_key(level: str) -> tuple[int, int, str]:
    """Return a key that sorts words from easy to expert and numbers by value."""
    return (DIFFICULTIES.index(level) if level in DIFFICULTIES else -1, len(level), level)


def duration(seconds: float) -> str:
    """Format seconds: 0.012 s, 12.3 s, 4 min 05 s or 2 h 03 min."""
    if 0 < seconds < 1:
        return f"{seconds:.2g} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
