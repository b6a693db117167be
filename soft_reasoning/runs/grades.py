"""A record reduced to its grades, from which metrics are computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from soft_reasoning.answers import MODES, AnswerGrader, Grader
from soft_reasoning.runs.records import agreement_of, answers_of, check_record, problem_of
from soft_reasoning.types import Problem, Usage


@dataclass(frozen=True)
class GradedCandidate:
    """One candidate with its grade.

    Attributes:
        correct: Whether it is right; None without gold.
        parsed: Whether it has an answer.
        round: Its round.
        reward: Its reward.
        agreement: The verifier's score before confidence; None if it was not judged.
        length: |u|; None if it is no point of a search space.
    """

    correct: bool | None
    parsed: bool
    round: int
    reward: float | None
    agreement: float | None
    length: float | None = None

    @property
    def approved(self) -> bool | None:
        """Whether the verifier calls it right; None if it was not judged."""
        return None if self.agreement is None else self.agreement >= 0.5


@dataclass(frozen=True)
class Extraction:
    """One problem under one way of extracting answers; ``correct`` and ``covered`` are None without gold."""

    correct: bool | None
    parsed: bool
    covered: bool | None
    candidates_parsed: tuple[bool, ...]


class Outcome(NamedTuple):
    """What is kept of a problem after it is counted."""

    correct: bool | None
    covered: bool
    answer: str | None
    difficulty: str | None


@dataclass(frozen=True)
class Graded:
    """One problem with its grade, its candidates and its cost.

    Attributes:
        correct: Whether the final answer is right; None without gold.
        extractions: The same under every way of extracting answers, by its name.
        decided: For each round of proposals, the share that the acquisition function chose.
    """

    doc_id: str
    answer: str | None
    correct: bool | None
    candidates: tuple[GradedCandidate, ...]
    usage: Mapping[str, Usage] = field(default_factory=dict)
    difficulty: str | None = None
    extractions: Mapping[str, Extraction] = field(default_factory=dict)
    decided: tuple[float, ...] = ()

    @property
    def parsed(self) -> bool:
        return self.answer is not None

    @property
    def rounds(self) -> int:
        """Number of rounds of candidates."""
        return 1 + max((c.round for c in self.candidates), default=-1)

    def covered(self, first: int | None = None) -> bool:
        """Whether any candidate (of the ``first``) is right; the verifier's own answers do not count."""
        return any(c.correct for c in self.candidates[:first])

    @property
    def outcome(self) -> Outcome:
        return Outcome(self.correct, self.covered(), self.answer, self.difficulty)


def grade(record: Mapping[str, Any], grader: AnswerGrader) -> Graded:
    """Grade the final answer and every candidate of a stored record. Raises UserError as ``check_record``."""
    check_record(record)
    problem = problem_of(record)
    difficulty = problem.doc.get("difficulty")
    answer, answers = answers_of(record, grader)
    return Graded(
        doc_id=problem.id,
        answer=answer,
        correct=grader.correct(answer, problem),
        candidates=tuple(
            GradedCandidate(
                grader.correct(a, problem),
                a is not None,
                c["round"],
                c["reward"],
                agreement_of(c),
                None if c.get("u") is None else math.hypot(*c["u"]),
            )  # fmt: skip
            for a, c in zip(answers, record["candidates"], strict=True)
        ),
        usage={role: Usage(**counts) for role, counts in record["usage"].items()},
        difficulty=None if difficulty is None else str(difficulty),
        extractions={one.name: _extraction(record, problem, one) for one in _compared(grader)},
        decided=tuple(
            entry["proposal"]["decided"]
            for entry in record["trace"]
            if "decided" in (entry.get("proposal") or {})
        ),
    )


def _compared(grader: AnswerGrader) -> list[AnswerGrader]:
    """This package's grader in each mode, with the tolerances of ``grader``, and ``grader`` itself."""
    tolerances = (grader.absolute, grader.relative) if isinstance(grader, Grader) else ()
    own: list[AnswerGrader] = [Grader(*tolerances, extraction=mode) for mode in MODES]
    return own if grader.name in MODES else [*own, grader]


def _extraction(record: Mapping[str, Any], problem: Problem, grader: AnswerGrader) -> Extraction:
    answer, answers = answers_of(record, grader)
    return Extraction(
        correct=grader.correct(answer, problem),
        parsed=answer is not None,
        covered=None if problem.gold is None else any(grader.correct(a, problem) for a in answers),
        candidates_parsed=tuple(a is not None for a in answers),
    )
