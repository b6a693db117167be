"""One problem's record, a line of ``samples.jsonl``, with lm-evaluation-harness's names where it has one.

``doc_id``, ``doc``, ``target``, ``resps``, ``filtered_resps`` and ``exact_match`` are the harness's.
``resps[0][i]`` is the text of ``candidates[i]``. ``extraction`` says how answers were extracted. Every
number keeps its exact value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from soft_reasoning.answers import ANSWER_TYPES, MODES, AnswerGrader, Grader
from soft_reasoning.runs.files import COUNT, MAPPING, NULL, NUMBER, REAL, TEXT, Each, Kind, fault
from soft_reasoning.types import Candidate, Problem, Result, Usage, UserError

Asked = tuple[str | None, str | None, str | None]
"""A problem's question, answer type and reference answer."""

FIRST = 5
"""Number of candidates of coverage@5, equal to the samples of the paper's baselines."""

MEMORY = ("kv", "activations")
"""Kinds of an engine's memory beside the weights: keys and values, and everything else."""

WORDS = ("easy", "medium", "hard", "expert", "extreme")
"""Names of difficulties, in order."""

USAGE = {field.name for field in fields(Usage)}

RECORD: dict[str, Any] = {
    "doc_id": TEXT,
    "question": TEXT,
    "answer_type": Kind(f"one of {', '.join(ANSWER_TYPES)}", lambda value: value in ANSWER_TYPES),
    "target": TEXT | NULL,
    "extraction?": TEXT,
    "answer": TEXT | NULL,
    "resps": [[TEXT]],
    "candidates": [
        {
            "answer": TEXT | NULL,
            "round": COUNT,
            "reward": REAL | NULL,  # a coherence of log-probabilities may be -inf
            "verified": NUMBER | NULL,
            "agreement?": NUMBER,
            "u?": [NUMBER],
        }
    ],
    "trace": [
        {
            "verifier?": {"answers?": [TEXT | NULL], "texts?": [TEXT]},
            "proposal?": {"decided?": NUMBER, "mean?": [NUMBER]},
        },
    ],
    "usage": Each({f"{name}?": COUNT for name in sorted(USAGE)}),
    "doc": MAPPING,
}
"""The shape of a record, as far as metrics and tables are computed from it."""


def asked(record: Mapping[str, Any]) -> Asked:
    """What the problem of a record was."""
    return record.get("question"), record.get("answer_type"), record.get("target")


def record_of(problem: Problem, result: Result, grader: AnswerGrader) -> dict[str, Any]:
    """The record of one finished problem, plain values only."""
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
        "candidates": [_plain(candidate) for candidate in result.candidates],
        "prompt": list(result.prompt),
        "trace": list(result.trace),
        "usage": {role: asdict(usage) for role, usage in result.usage.items()},
        "doc": dict(problem.doc),
    }


def _plain(candidate: Candidate) -> dict[str, Any]:
    return {name: value for name, value in candidate.stored().items() if name != "text"}


MOST_ROUNDS = 10_000
"""More than any run has; tables have a row for each round. A round may be without candidates."""


def check_record(record: Mapping[str, Any]) -> None:
    """Raises UserError, naming the problem and the field, for a record that cannot be graded."""
    found = fault(record, RECORD)
    if found is None:
        texts, count = record["resps"], len(record["candidates"])
        if len(texts) != 1 or len(texts[0]) != count:
            found = f"resps: expected one list of {count} texts, as there are candidates, got another number"
        elif any(candidate["round"] > MOST_ROUNDS for candidate in record["candidates"]):
            found = f"candidates: expected rounds from 0 to {MOST_ROUNDS}, got a larger number"
        elif unknown := {key for counts in record["usage"].values() for key in counts} - USAGE:
            found = f"usage: expected counts of {', '.join(sorted(USAGE))}, got {min(unknown)!r:.40}"
    if found is not None:
        raise UserError(
            f"problem {record.get('doc_id')!r:.40}: its line in samples.jsonl was edited ({found}); restore "
            "or delete that line, or start over with fresh=true"
        )


def problem_of(record: Mapping[str, Any]) -> Problem:
    """Return the problem of a record."""
    return Problem(
        id=record["doc_id"],
        question=record["question"],
        gold=record["target"],
        answer_type=record["answer_type"],
        doc=record["doc"],
    )


def agreement_of(candidate: Mapping[str, Any]) -> float | None:
    """Return the verifier's score of a record's candidate before confidence; None if it was not judged."""
    agreement = candidate.get("agreement")  # records of earlier versions lack the key
    return candidate["verified"] if agreement is None else agreement


def answers_of(record: Mapping[str, Any], grader: AnswerGrader) -> tuple[str | None, list[str | None]]:
    """Return the final answer and each candidate's, as ``grader`` reads them.

    Under the run's own extraction these are the stored answers. Under another the stored texts are read
    again. The final answer is then the vote of the texts (candidates and verifier's solutions) that gave
    it, or of all texts if there was none. An answer that no stored text gave is kept.
    """
    final, kind = record["answer"], record["answer_type"]
    stored = [candidate["answer"] for candidate in record["candidates"]]
    if grader.name == record.get("extraction", MODES[0]):  # records of the first versions lack the key
        return final, stored
    read = [grader.extract(text, kind) for text in record["resps"][0]]
    said = [*zip(stored, read, strict=True)]
    for verifier in (entry.get("verifier") or {} for entry in record["trace"]):
        # A judge has texts and no answers of its own.
        pairs = zip(verifier.get("answers", ()), verifier.get("texts", ()), strict=False)
        said += [(answer, grader.extract(text, kind)) for answer, text in pairs]
    sources = [now for before, now in said if final is None or grader.equal(before, final, kind)]
    return (grader.vote(sources, kind) if sources else final), read


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
        new: Whether no candidate before had its text.
        expected: The surrogate's mean at its point before it was tried; None without one.
    """

    correct: bool | None
    parsed: bool
    round: int
    reward: float | None
    agreement: float | None
    length: float | None = None
    new: bool = True
    expected: float | None = None

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
        answers: Number of different answers of the candidates, as they were read.
    """

    doc_id: str
    answer: str | None
    correct: bool | None
    candidates: tuple[GradedCandidate, ...]
    usage: Mapping[str, Usage] = field(default_factory=dict)
    difficulty: str | None = None
    extractions: Mapping[str, Extraction] = field(default_factory=dict)
    decided: tuple[float, ...] = ()
    answers: int = 0

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
    texts, expected = record["resps"][0], _expected(record)
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
                texts[i] not in texts[:i],
                expected[i],
            )  # fmt: skip
            for i, (a, c) in enumerate(zip(answers, record["candidates"], strict=True))
        ),
        usage={role: Usage(**counts) for role, counts in record["usage"].items()},
        difficulty=None if difficulty is None else str(difficulty),
        extractions={one.name: _extraction(record, problem, one) for one in _compared(grader)},
        decided=tuple(
            entry["proposal"]["decided"]
            for entry in record["trace"]
            if "decided" in (entry.get("proposal") or {})
        ),
        answers=len(set(answers) - {None}),
    )


def _expected(record: Mapping[str, Any]) -> list[float | None]:
    """For each candidate the surrogate's mean at its point before its round."""
    means = {
        i: iter((entry.get("proposal") or {}).get("mean", ())) for i, entry in enumerate(record["trace"])
    }
    return [next(means.get(c["round"], iter(())), None) for c in record["candidates"]]


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


def ease(level: str) -> tuple[int, int, str]:
    """Return a key that sorts words from easy to expert and numbers by value."""
    return (WORDS.index(level) if level in WORDS else -1, len(level), level)


def duration(seconds: float) -> str:
    """Format seconds: 0.012 s, 12.3 s, 4 min 05 s or 2 h 03 min."""
    if 0 < seconds < 1:
        return f"{seconds:.2g} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
