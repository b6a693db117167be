"""A problem's record, a line of ``samples.jsonl``, with lm-evaluation-harness's names where they exist.

``doc_id``, ``doc``, ``target``, ``resps``, ``filtered_resps`` and ``exact_match`` are the harness's.
``resps[0][i]`` is the text of ``candidates[i]``, which begins with its ``opening``. ``extraction`` names the
way answers were extracted. Every number keeps its exact value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.thoughts import split
from soft_reasoning.types import Candidate, Problem, Result

COVERAGE_AT = 5
"""Number of candidates in coverage@5, equal to the samples of the paper's baselines."""

MEMORY = ("kv", "activations")
"""Kinds of an engine's memory beside the weights: keys and values, and everything else."""


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
        "thinks": result.thinks,
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
    candidates: list[Candidate] = []
    for row, text in zip(record["candidates"], record["resps"][0], strict=True):
        stored: dict[str, Any] = {**row, "text": text, "u": row["u"] and tuple(row["u"])}
        candidates.append(Candidate(**stored))
    return candidates


def written(record: Mapping[str, Any]) -> list[str]:
    """Return the generated texts of a record's candidates, without their openings."""
    rows = zip(record["resps"][0], record["candidates"], strict=True)
    return [text[len(row.get("opening", "")) :] for text, row in rows]


def stored_agreement(candidate: Mapping[str, Any]) -> float | None:
    """Return the verifier's score of a record's candidate before confidence; None if it was not judged."""
    agreement = candidate["agreement"]
    return candidate["verified"] if agreement is None else agreement


def read_answers(record: Mapping[str, Any], grader: AnswerGrader) -> tuple[str | None, list[str | None]]:
    """Return the final answer and each candidate's answer, as ``grader`` reads them.

    With the run's extraction these are the stored answers. With another the stored texts are read again. The
    final answer is then the vote of the texts (candidates and verifier's solutions) that gave it, or of all
    texts if there was none. An answer that no stored text gave stays as it is, and so does a program's value.
    """
    final, kind = record["answer"], record["answer_type"]
    stored = [candidate["answer"] for candidate in record["candidates"]]
    if grader.name == record["extraction"]:
        return final, stored
    question, thinks = record["question"], record.get("thinks", False)  # older records lack it
    parsed = [
        c.answer if c.computed else grader.extract(split(c.text, thinks)[1], kind, question, cut=c.cut)
        for c in stored_candidates(record)
    ]
    pairs = [*zip(stored, parsed, strict=True)]
    for verifier in (entry.get("verifier") or {} for entry in record["trace"]):
        # A judge has texts, but no answers.
        solutions = zip(verifier.get("answers", ()), verifier.get("texts", ()), strict=False)
        computed = verifier.get("computed", False)
        pairs += [(a, a if computed else grader.extract(text, kind, question)) for a, text in solutions]
    sources = [new for old, new in pairs if final is None or grader.equal(old, final, kind)]
    return (grader.vote(sources, kind) if sources else final), parsed
