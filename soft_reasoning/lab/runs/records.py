"""A problem's record, a line of ``samples.jsonl``, and its grades, of which ``grades.json`` holds a part.

A record's line has lm-evaluation-harness's names where they exist: ``doc_id``, ``doc``, ``target``,
``resps``, ``filtered_resps`` and ``exact_match``. ``resps[0][i]`` is the text of ``candidates[i]``. Every
number keeps its exact value.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.judge.final import Vote, stored_verdicts
from soft_reasoning.judge.verifier import Verdict
from soft_reasoning.lab.runs.files import GRADES, SAMPLES, read_json
from soft_reasoning.types import Candidate, Problem, Result, Usage, UserError

COVERAGE_AT = 5
"""Number of candidates in coverage@5, equal to the samples of the paper's baselines."""

MEMORY = ("kv", "activations")
"""Kinds of an engine's memory other than the weights: keys and values, and everything else."""


@dataclass(frozen=True)
class TracedRound:
    """What metrics and pages read of an entry of the trace; a method leaves out what it does not know.

    Lists hold a value per candidate.

    Attributes:
        number: The number of the round; None for an entry that is not a round's.
        verdict: The verifier's answers and texts, without scores.
        mean: The surrogate's expected rewards before the points were tried.
        sd: Their standard deviations.
        decided: Share of the points that the acquisition function chose.
        tied: Share of the points that were drawn among several of the best candidate points.
        deltas: CoT-decoding's margins.
        first_tokens: CoT-decoding's first tokens.
        nearest: For each soft token the nearest tokens and their cosines.
        weights: For each soft token the heaviest tokens of its mixture and their weights.
        ended: Why the rounds ended; None before the last one.
    """

    number: int | None
    verdict: Verdict
    mean: tuple[float, ...] = ()
    sd: tuple[float, ...] = ()
    decided: float | None = None
    tied: float | None = None
    deltas: tuple[float | None, ...] = ()
    first_tokens: tuple[str, ...] = ()
    nearest: tuple[list[list[tuple[str, float]]], ...] = ()
    weights: tuple[list[list[tuple[str, float]]], ...] = ()
    ended: str | None = None

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> TracedRound:
        """Return what is read of an entry of plain values."""
        proposal, tokens = entry.get("proposal") or {}, entry.get("tokens") or ()
        return cls(
            number=entry.get("round"),
            verdict=stored_verdicts([entry])[0],
            mean=tuple(proposal.get("mean") or ()),
            sd=tuple(proposal.get("sd") or ()),
            decided=proposal.get("decided"),
            tied=proposal.get("tied"),
            deltas=tuple(entry.get("deltas") or ()),
            first_tokens=tuple(entry.get("first_tokens") or ()),
            nearest=tuple([token.get("nearest", []) for token in soft] for soft in tokens),
            weights=tuple([token["weights"] for token in soft if "weights" in token] for soft in tokens),
            ended=entry.get("ended"),
        )


@dataclass(frozen=True)
class Record:
    """A finished problem of a run.

    Attributes:
        problem: The problem; messages and prompts that came with a question are not stored.
        result: The method's result; tokens and log-probabilities of candidates are not stored.
        extraction: The way in which answers were extracted.
        exact_match: Whether the final answer is correct; None without a reference answer.
    """

    problem: Problem
    result: Result
    extraction: str
    exact_match: float | None

    @classmethod
    def of(cls, problem: Problem, result: Result, grader: AnswerGrader) -> Record:
        """Return the record of a finished problem."""
        right = grader.correct(result.answer, problem)
        return cls(problem, result, grader.name, None if right is None else float(right))

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> Record:
        """Return the record in a parsed line.

        Raises:
            KeyError: If the line lacks a field.
        """
        candidates: list[Candidate] = []
        for row, text in zip(line["candidates"], line["resps"][0], strict=True):
            stored: dict[str, Any] = {**row, "text": text, "u": row["u"] and tuple(row["u"])}
            candidates.append(Candidate(**stored))
        return cls(
            Problem(line["doc_id"], line["question"], line["target"], line["answer_type"], doc=line["doc"]),
            Result(
                line["answer"],
                tuple(candidates),
                tuple(line["trace"]),
                {role: Usage(**counts) for role, counts in line["usage"].items()},
                tuple(line.get("prompt", ())),  # older records lack it, and whether the model thinks
                line.get("thinks", False),
            ),
            line["extraction"],
            line["exact_match"],
        )

    def line(self) -> dict[str, Any]:
        """Return the record's line in plain values."""
        problem, result = self.problem, self.result
        return {
            "doc_id": problem.id,
            "question": problem.question,
            "answer_type": problem.answer_type,
            "target": problem.gold,
            "extraction": self.extraction,
            "answer": result.answer,
            "exact_match": self.exact_match,
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

    @property
    def rounds(self) -> list[TracedRound]:
        """What is read of each entry of the trace."""
        return [TracedRound.of(entry) for entry in self.result.trace]

    def until(self, rounds: int) -> Record:
        """Return the part of the record that ``rounds`` rounds wrote, with the final answer of all."""
        candidates = tuple(c for c in self.result.candidates if c.round < rounds)
        part = replace(self.result, candidates=candidates, trace=self.result.trace[:rounds])
        return replace(self, result=part)


@dataclass(frozen=True)
class CandidateGrade:
    """A graded candidate.

    Attributes:
        answer: Its answer, as the grader reads it.
        correct: Whether it is correct; None without a reference answer.
        round: The number of its round.
        reward: Its reward.
        lost_at: Tokens after which a limit cut it before its answer ended; None for others.
        approved: Whether the verifier approved it, before its confidence; None if it was not judged.
        length: Length |u| of its point.
        new: Whether no earlier candidate had its text.
        expected: The surrogate's mean at its point before its evaluation.
    """

    answer: str | None
    correct: bool | None
    round: int
    reward: float | None
    lost_at: int | None
    approved: bool | None
    length: float | None
    new: bool
    expected: float | None


@dataclass(frozen=True)
class VoteGrade(Vote):
    """The votes for an answer, whether it is ``right``, and whether it was ``chosen``."""

    right: bool | None = None
    chosen: bool = False


@dataclass(frozen=True)
class Reading:
    """A problem's answers under one way of extracting answers, called ``mode``."""

    mode: str
    correct: bool | None
    covered: bool | None
    parsed: bool
    candidates: int
    candidates_parsed: int


@dataclass(frozen=True)
class AfterRound:
    """What there would be if the search had ended after a round.

    Attributes:
        correct: Whether the final answer would be right; None as well if the final rule is not known.
        best_reward: The highest reward so far.
        tokens: The tokens generated so far, of which a verifier's count in equal parts for each round.
    """

    correct: bool | None
    best_reward: float | None
    tokens: float


@dataclass(frozen=True)
class ProblemGrade:
    """What counts once per problem.

    Attributes:
        answer: The final answer, as the grader reads it.
        correct: Whether it is correct; None without a reference answer.
        covered: Whether any candidate is correct; a verifier's solutions do not count.
        covered_first: Whether any of the first ``COVERAGE_AT`` is.
        answers: Number of different answers of candidates.
        rounds: Number of rounds.
        one_text: Whether nearly all candidates are the same text; None for fewer than two.
        difficulty: The problem's difficulty, if the data set has it.
        wrong: An item of ``metrics.WRONG_REASONS``; None if the final answer is not wrong.
    """

    answer: str | None
    correct: bool | None
    covered: bool
    covered_first: bool
    answers: int
    rounds: int
    one_text: bool | None
    difficulty: str | None
    wrong: str | None


@dataclass(frozen=True)
class Outcome:
    """What ``grades.json`` holds of a problem, by which pages mark correct and wrong answers.

    ``candidates`` holds (answer, correct) of each candidate, ``verifier`` whether the verifier's answers are
    right, for each entry of the trace.
    """

    correct: bool | None
    covered: bool
    answer: str | None
    difficulty: str | None
    candidates: tuple[tuple[str | None, bool | None], ...]
    verifier: tuple[tuple[bool | None, ...], ...]
    votes: tuple[VoteGrade, ...]

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Outcome:
        """Return the outcome in a problem's part of ``grades.json``."""
        parts: dict[str, Any] = {
            **stored,
            "candidates": tuple(map(tuple, stored["candidates"])),
            "verifier": tuple(map(tuple, stored["verifier"])),
            "votes": tuple(VoteGrade(**vote) for vote in stored["votes"]),
        }
        return cls(**parts)


@dataclass(frozen=True)
class Graded:
    """A graded problem.

    Attributes:
        id: The problem's id.
        problem: Its grades.
        candidates: The grades of each candidate.
        readings: Its grades under each way of extracting answers.
        usage: Tokens by role.
        decided: For each round of proposals, the share that the acquisition function chose.
        tied: The share that was drawn among several of the best candidate points.
        after_rounds: What there would be after each round.
        verifier: For each entry of the trace, whether the verifier's answers are correct.
        votes: The answers by descending weight. Weights are None if the final rule is not known.
    """

    id: str
    problem: ProblemGrade
    candidates: tuple[CandidateGrade, ...]
    readings: tuple[Reading, ...]
    usage: Mapping[str, Usage]
    decided: tuple[float, ...]
    tied: tuple[float, ...]
    after_rounds: tuple[AfterRound, ...]
    verifier: tuple[tuple[bool | None, ...], ...]
    votes: tuple[VoteGrade, ...]

    @property
    def outcome(self) -> Outcome:
        """What ``grades.json`` holds of it."""
        grade, candidates = self.problem, tuple((c.answer, c.correct) for c in self.candidates)
        parts = grade.correct, grade.covered, grade.answer, grade.difficulty
        return Outcome(*parts, candidates, self.verifier, self.votes)


def read_records(folder: str | os.PathLike[str]) -> Iterator[Record]:
    """Yield the records of a run; a torn last line is skipped, and so are later records of a problem.

    Raises:
        UserError: If there is no file of records, or a complete line is not a record.
    """
    path = Path(folder) / SAMPLES
    if not path.is_file():
        raise UserError(f"expected a run's folder with {SAMPLES}, got {folder}; check the path")
    seen = set[str]()
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                record = Record.read(json.loads(line))
            except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
                lacks = f" that lacks {error}" if isinstance(error, KeyError) else ""
                raise UserError(
                    f"{path}, line {number}: expected a record, got an edited line{lacks}; restore or delete "
                    "that line, or start over with fresh=true"
                ) from error
            if record.problem.id not in seen:
                seen.add(record.problem.id)
                yield record


def in_order(records: Iterable[Record]) -> list[Record]:
    """Return records by the words and numbers of their ids; a file has them in the order of finishing."""

    def key(record: Record) -> list[tuple[int, str]]:
        return [(int(number or 0), word) for word, number in re.findall(r"(\D+)|(\d+)", record.problem.id)]

    return sorted(records, key=key)


def read_outcomes(folder: Path) -> dict[str, Outcome]:
    """Return the outcomes of a finished run's problems by their ids.

    Raises:
        UserError: If the folder holds no finished run, or grades of another version.
    """
    try:
        return {name: Outcome.read(stored) for name, stored in read_json(folder / GRADES).items()}
    except (TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{folder / GRADES}: expected the grades of this version, got others; compute them anew with "
            f"soft-reasoning regrade {folder}"
        ) from error
