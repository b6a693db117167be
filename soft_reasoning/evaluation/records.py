"""One problem's record: what ``samples.jsonl`` holds, in lm-evaluation-harness' names where it has one.

``doc_id``, ``doc``, ``target``, ``resps``, ``filtered_resps`` and ``exact_match`` are the harness'.
``resps[0][i]`` is the text of ``candidates[i]``; every number keeps its exact value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from soft_reasoning.types import Candidate, Problem, Result

if TYPE_CHECKING:
    from soft_reasoning.answers import Grader


def record_of(problem: Problem, result: Result, grader: Grader) -> dict[str, Any]:
    """The record of one finished problem, plain values only."""
    return {
        "doc_id": problem.id,
        "question": problem.question,
        "answer_type": problem.answer_type,
        "target": problem.gold,
        "answer": result.answer,
        "exact_match": None if problem.gold is None else float(grader.correct(result.answer, problem)),
        "filtered_resps": [result.answer],
        "resps": [[candidate.text for candidate in result.candidates]],
        "candidates": [_plain(candidate) for candidate in result.candidates],
        "trace": list(result.trace),
        "usage": {role: asdict(usage) for role, usage in result.usage.items()},
        "doc": dict(problem.doc),
    }


def _plain(candidate: Candidate) -> dict[str, Any]:
    fields = asdict(candidate)
    del fields["text"]
    return fields


def problem_of(record: Mapping[str, Any]) -> Problem:
    """The problem that a record answers."""
    return Problem(
        id=record["doc_id"],
        question=record["question"],
        gold=record["target"],
        answer_type=record["answer_type"],
        doc=record["doc"],
    )
