"""A problem's record, its grades, and the folder of a run that keeps them.

A record is a line of ``samples.jsonl`` with lm-evaluation-harness's names where they exist: ``doc_id``,
``doc``, ``target``, ``resps``, ``filtered_resps`` and ``exact_match``. ``resps[0][i]`` is the text of
``candidates[i]``. Every number keeps its exact value.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.engine.completions import FILE as COMPLETIONS
from soft_reasoning.lab.runs.files import (
    COSTS,
    GRADES,
    MANIFEST,
    PAGE,
    PREDICTIONS,
    REPORT,
    RESULTS,
    SAMPLES,
    TABLES,
    Json,
    encode,
    lock,
    read_json,
    write_json,
)
from soft_reasoning.lab.runs.manifest import check_same_run, environment_changes
from soft_reasoning.types import Candidate, Problem, Result, Usage, UserError

START_OVER = "start over with fresh=true, or choose another folder with hydra.run.dir="

COVERAGE_AT = 5
"""Number of candidates in coverage@5, equal to the samples of the paper's baselines."""

DERIVED = (
    *(RESULTS, GRADES, REPORT, PREDICTIONS, PAGE, f"{TABLES}/*.csv", f"{TABLES}/*.tex"),
    *("*.svg", "*.png", "*.pdf", f"{COMPLETIONS}*"),
)
"""Files that are removed when a run starts over: those computed from the others, and the completions."""


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
    def new(cls, problem: Problem, result: Result, grader: AnswerGrader) -> Record:
        """Return the record of a finished problem."""
        right = grader.correct(result.answer, problem)
        return cls(problem, result, grader.name, None if right is None else float(right))

    @classmethod
    def read(cls, line: Json) -> Record:
        """Return the record in a parsed line.

        Raises:
            KeyError: If the line lacks a field.
            TypeError: For a list where a text is meant, and others of another kind.
        """
        if not all(isinstance(line[name], str) for name in ("doc_id", "question", "answer_type")):
            raise TypeError("expected texts")
        candidates: list[Candidate] = []
        for row, text in zip(line["candidates"], line["resps"][0], strict=True):
            stored: dict[str, Any] = {**row, "text": text, "u": row["u"] and tuple(row["u"])}
            candidates.append(Candidate(**stored))
        asked = (line[name] for name in ("doc_id", "question", "target", "answer_type", "doc"))
        return cls(
            Problem(*asked, place=line["place"]),
            Result(
                line["answer"],
                tuple(candidates),
                tuple(line["trace"]),
                {role: Usage(**counts) for role, counts in line["usage"].items()},
                tuple(line["prompt"]),
                line["thinks"],
            ),
            line["extraction"],
            line["exact_match"],
        )

    def line(self) -> Json:
        """Return the record's line in plain values."""
        problem, result = self.problem, self.result
        return {
            "doc_id": problem.id,
            "place": problem.place,
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


@dataclass(frozen=True)
class Graded:
    """A graded problem: an entry of ``grades.json``, from which metrics, tables and pages are computed.

    ``correct`` and other verdicts are None without a reference answer. The lists from ``round`` to
    ``new`` hold a value per candidate.

    Attributes:
        id: The problem's id.
        answer: The final answer, as the grader reads it.
        correct: Whether it is correct.
        covered: Whether any candidate is correct; a verifier's solutions do not count.
        difficulty: The problem's difficulty, if the data set has it.
        candidates: (answer, correct) of each candidate.
        verifier: For each entry of the trace, whether the verifier's answers are correct.
        votes: The answers by descending weight: the values of a ``judge.final.Vote``, whether the answer is
            ``right``, and whether it was ``chosen``.
        answers: Number of different answers of candidates.
        round: The number of its round.
        reward: Its reward.
        cut_at: Tokens after which a limit cut it before its answer ended; None for others.
        approved: Whether the verifier approved it, before its confidence; None if it was not judged.
        new: Whether no earlier candidate had its text.
        decided: For each round of proposals, the share that the acquisition function chose.
        after_rounds: For each round, what there would be if the search had ended after it: whether the final
            answer would be ``correct`` (None as well if the final rule is not known), the ``best_reward`` and
            the ``tokens`` so far; the verifier's tokens are split evenly over the rounds.
        usage: Token counts by role.
        question: The question's fingerprint, which repeated questions share; empty in older runs.
    """

    id: str
    answer: str | None
    correct: bool | None
    covered: bool
    difficulty: str | None
    candidates: Sequence[tuple[str | None, bool | None]]
    verifier: Sequence[Sequence[bool | None]]
    votes: Sequence[Json]
    answers: int = 0
    round: Sequence[int] = ()
    reward: Sequence[float | None] = ()
    cut_at: Sequence[int | None] = ()
    approved: Sequence[bool | None] = ()
    new: Sequence[bool] = ()
    decided: Sequence[float] = ()
    after_rounds: Sequence[Json] = ()
    usage: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    question: str = ""

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return 1 + max(self.round, default=-1)


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
                record = Record.read({"place": number - 1} | json.loads(line))  # older runs have none
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                lacks = f" that lacks {error}" if isinstance(error, KeyError) else ""
                raise UserError(
                    f"{path}, line {number}: expected a record, got an edited line{lacks}; restore or delete "
                    "that line, or start over with fresh=true"
                ) from error
            if record.problem.id not in seen:
                seen.add(record.problem.id)
                yield record


def in_order(records: Iterable[Record]) -> list[Record]:
    """Return records by their places; a run's file has them in the order of finishing."""
    return sorted(records, key=lambda record: record.problem.place)


def read_grades(folder: Path) -> dict[str, Graded]:
    """Return the graded problems of a finished run by their ids.

    Raises:
        UserError: If the folder holds no finished run, or grades of another version.
    """
    names = {value.name for value in fields(Graded)}
    grades: dict[str, Graded] = {}
    try:
        for name, stored in read_json(folder / GRADES).items():
            known = {key: value for key, value in stored.items() if key in names}
            grades[name] = Graded(**{"id": name, **known})
    except (TypeError, AttributeError) as error:
        raise UserError(
            f"{folder / GRADES}: expected the grades of this version, got others; compute them anew with "
            f"soft-reasoning regrade {folder}"
        ) from error
    return grades


def read_graded(folder: Path) -> list[tuple[Record, Graded]]:
    """Return the records of a finished run in the order of their places, each with its grades.

    Raises:
        UserError: As for :func:`read_grades`.
    """
    grades = read_grades(folder)
    records = in_order(record for record in read_records(folder) if record.problem.id in grades)
    return [(record, grades[record.problem.id]) for record in records]


class Store:
    """The folder of one run, open for writing: one writer at a time, and no loss in a crash.

    ``manifest.json`` describes the run, ``samples.jsonl`` holds a record per problem and ``costs.json`` their
    time and memory. Everything else in the folder is computed from these three files.

    ``records`` are the stored records, in order, and ``manifest`` is that of the stored run, if there is one.
    ``costs`` are the ``seconds`` and ``peak_bytes``, by kind, over all starts of the run. ``notes`` holds a
    line for each observation on opening. ``samples.jsonl`` itself is locked (flock), so a dead process leaves
    no lock. ``locked`` is False where the filesystem has no locks.

    Args:
        folder: The folder.
        fresh: Whether to start over.

    Raises:
        UserError: If the folder is in use by another process, or a complete line of ``samples.jsonl`` is not
            a record.

    Example:
        >>> with Store(folder) as store:
        ...     store.begin(build_manifest({"seed": 0}, {}))
        ...     store.append(Record.new(problem, result, grader))
    """

    def __init__(self, folder: Path, *, fresh: bool = False) -> None:
        self.folder = folder
        self.records: list[Record] = []
        self.manifest: dict[str, Any] = {}
        self.costs: dict[str, dict[str, Any]] = {"seconds": {}, "peak_bytes": {}}
        self.notes: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._samples = open(folder / SAMPLES, "ab")
        try:
            self.locked: bool = (why := lock(self._samples.fileno(), folder)) is None
            if why is not None:
                self.notes.append(why)
            if fresh:
                self._start_over()
            if self._samples.tell():
                self._read()
        except BaseException:
            self._samples.close()
            raise

    def _start_over(self) -> None:
        self._samples.truncate(0)
        self._samples.seek(0, os.SEEK_END)
        for pattern in DERIVED:
            for path in self.folder.glob(pattern):
                path.unlink()

    def _read(self) -> None:
        """Read the stored run; remove a torn last line."""
        self.manifest = read_json(self.folder / MANIFEST, START_OVER)
        if not {"config", "model", "plugins"} <= self.manifest.keys():
            raise UserError(f"{self.folder / MANIFEST}: expected a run's manifest, got another; {START_OVER}")
        self.costs = read_json(self.folder / COSTS, START_OVER)
        self.records = list(read_records(self.folder))
        lines = (self.folder / SAMPLES).read_bytes()
        whole = lines.rfind(b"\n") + 1
        if whole < len(lines):
            self._samples.truncate(whole)
            self.notes.append(
                f"{self.folder / SAMPLES}: dropped a last line that a crash cut off; that problem runs again"
            )

    def begin(self, manifest: dict[str, Any]) -> None:
        """Begin a run with ``manifest`` (``manifest.build_manifest``), or continue the stored one.

        Raises:
            UserError: If the folder holds results of another configuration or of other weights.
        """
        if self.manifest:
            check_same_run(self.manifest, manifest, self.folder)
            if changes := environment_changes(self.manifest, manifest):
                self.notes.append(f"continuing a run made with other versions ({'; '.join(changes)})")
        else:
            self.manifest = manifest
            write_json(self.folder / MANIFEST, manifest)
            write_json(self.folder / COSTS, self.costs)

    def append(self, record: Record) -> None:
        """Write a problem's record and wait until it is on the disk."""
        # A row of Parquet or the hub may hold dates, decimals or pictures: ``default``.
        self._samples.write(encode(json.dumps(record.line(), ensure_ascii=False, default=str) + "\n"))
        self._samples.flush()
        os.fsync(self._samples.fileno())

    def add_costs(self, seconds: Mapping[str, float], peaks: Mapping[str, int]) -> None:
        """Add the seconds by kind since the last call, and update the peaks of memory."""
        for name, values, combine in (("seconds", seconds, sum), ("peak_bytes", peaks, max)):
            for kind, value in values.items():
                self.costs[name][kind] = combine((self.costs[name].get(kind, 0), value))
        write_json(self.folder / COSTS, self.costs)

    def update_manifest(self, manifest: Json) -> None:
        """Store the command and the configuration of the results.

        Keys that change no problem's result, such as ``limit``, may have had other values at the first start.
        """
        self.manifest |= {name: manifest[name] for name in ("command", "choices", "config")}
        write_json(self.folder / MANIFEST, self.manifest)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._samples.close()
