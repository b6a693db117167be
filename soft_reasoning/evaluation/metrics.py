"""Metrics of a run, from its records and a grader alone: a finished run can be graded again.

``grade`` reduces a record to what metrics need, so that thousands of problems fit in memory;
``summarise`` turns those into the numbers of ``results.json``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from soft_reasoning.answers import MODES, Grader
from soft_reasoning.evaluation.flops import flops
from soft_reasoning.evaluation.records import answers_of, problem_of
from soft_reasoning.evaluation.statistics import mean_stderr, pass_at
from soft_reasoning.types import Problem, Usage

FIRST = 5
"""Candidates that coverage@5 looks at: as many as the paper's baselines draw."""

MEMORY = ("kv", "activations")
"""What an engine's memory holds besides the weights: keys and values, and all else."""

WORDS = ("easy", "medium", "hard", "expert")
"""Names of difficulties, in their order."""


@dataclass(frozen=True)
class GradedCandidate:
    """One candidate: whether it is right (None without gold), and what search and verifier made of it."""

    correct: bool | None
    parsed: bool
    round: int
    reward: float | None
    verified: float | None


@dataclass(frozen=True)
class Reading:
    """One problem under one extraction; ``correct`` and ``covered`` are None without gold."""

    correct: bool | None
    parsed: bool
    covered: bool | None
    candidates_parsed: tuple[bool, ...]


@dataclass(frozen=True)
class Graded:
    """One problem: whether its final answer is right (None without gold), its candidates and its cost.

    ``readings`` holds the same under every extraction, by its name.
    """

    doc_id: str
    correct: bool | None
    parsed: bool
    candidates: tuple[GradedCandidate, ...]
    usage: Mapping[str, Usage] = field(default_factory=dict)
    difficulty: str | None = None
    readings: Mapping[str, Reading] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """How many rounds of candidates there were."""
        return 1 + max((c.round for c in self.candidates), default=-1)

    def covered(self, first: int | None = None) -> bool:
        """Whether any candidate (of the ``first``) is right; a verifier's own answers are none of them."""
        return any(c.correct for c in self.candidates[:first])


def grade(record: Mapping[str, Any], grader: Grader) -> Graded:
    """Grade the final answer and every candidate of a stored record."""
    problem = problem_of(record)
    difficulty = problem.doc.get("difficulty")
    answer, answers = answers_of(record, grader)
    return Graded(
        doc_id=problem.id,
        correct=grader.correct(answer, problem),
        parsed=answer is not None,
        candidates=tuple(
            GradedCandidate(grader.correct(a, problem), a is not None, c["round"], c["reward"], c["verified"])
            for a, c in zip(answers, record["candidates"], strict=True)
        ),
        usage={role: Usage(**counts) for role, counts in record["usage"].items()},
        difficulty=None if difficulty is None else str(difficulty),
        readings={mode: _reading(record, problem, replace(grader, extraction=mode)) for mode in MODES},
    )


def _reading(record: Mapping[str, Any], problem: Problem, grader: Grader) -> Reading:
    answer, answers = answers_of(record, grader)
    return Reading(
        correct=grader.correct(answer, problem),
        parsed=answer is not None,
        covered=None if problem.gold is None else any(grader.correct(a, problem) for a in answers),
        candidates_parsed=tuple(a is not None for a in answers),
    )


def summarise(
    rows: Sequence[Graded],
    *,
    seconds: Mapping[str, float] | None = None,
    peaks: Mapping[str, int] | None = None,
    rate: Mapping[str, int] | None = None,
    independent: bool = False,
) -> dict[str, Any]:
    """The metrics of a run, plain values with ``_stderr`` beside each share; None where undefined.

    ``independent`` says that candidates are i.i.d. samples, which pass@m needs. What it cost: ``seconds`` by
    kind (``idle`` is the time in which the engine had nothing to do), ``peak_bytes`` of the engine's memory
    and ``flops`` by role, estimated from the model's ``rate`` (``flops.rates``).
    """
    usage = _usage(rows)
    seconds = dict(seconds or {})
    if "total" in seconds:
        seconds["idle"] = max(0.0, seconds["total"] - seconds.get("engine", 0.0))
    graded = [row for row in rows if row.correct is not None]
    return {
        "problems": len(rows),
        **_share("exact_match", [row.correct for row in graded]),
        **_share("coverage", [row.covered() for row in graded]),
        **_share(f"coverage@{FIRST}", [row.covered(FIRST) for row in graded]),
        **(_pass(graded) if independent else {}),
        "unparsed": _mean(not row.parsed for row in rows),
        "candidates": _mean(len(row.candidates) for row in rows),
        "candidate_accuracy": _mean(c.correct for row in graded for c in row.candidates),
        "candidate_unparsed": _mean(not c.parsed for row in rows for c in row.candidates),
        "extraction": {mode: _extraction([row.readings[mode] for row in rows]) for mode in MODES},
        "rounds": _rounds(rows),
        "by_round": by_round(rows),
        "by_difficulty": _by_difficulty(graded),
        "verifier": _verifier(graded),
        "tokens": _tokens(usage),
        "flops": None if rate is None else {role: flops(counts, rate) for role, counts in usage.items()},
        "seconds": seconds,
        "peak_bytes": {kind: (peaks or {}).get(kind) for kind in MEMORY},
    }


def _mean(values: Iterable[float | bool | None]) -> float | None:
    values = [float(v) for v in values if v is not None]
    return math.fsum(values) / len(values) if values else None


def _share(name: str, values: Sequence[float | bool | None]) -> dict[str, float | None]:
    mean, stderr = mean_stderr([float(v) for v in values if v is not None])
    return {name: _known(mean), f"{name}_stderr": _known(stderr)}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _pass(graded: Sequence[Graded]) -> dict[str, float | None]:
    """pass@m for m = 1, 2, 4, ... and the largest number of samples that every problem has."""
    least = min((len(row.candidates) for row in graded), default=0)
    sizes = sorted({2**i for i in range(least.bit_length()) if 2**i <= least} | ({least} if least else set()))
    out: dict[str, float | None] = {}
    for m in sizes:
        each = [pass_at(len(r.candidates), sum(bool(c.correct) for c in r.candidates), m) for r in graded]
        out |= _share(f"pass@{m}", each)
    return out


def _extraction(readings: Sequence[Reading]) -> dict[str, float | None]:
    return {
        **_share("exact_match", [reading.correct for reading in readings]),
        **_share("coverage", [reading.covered for reading in readings]),
        "unparsed": _mean(not reading.parsed for reading in readings),
        "candidate_unparsed": _mean(not parsed for r in readings for parsed in r.candidates_parsed),
    }


def _rounds(rows: Sequence[Graded]) -> dict[str, Any]:
    ended = Counter(row.rounds for row in rows)
    return {
        "mean": _mean(row.rounds for row in rows),
        "share_ended_after": {str(n): ended[n] / len(rows) for n in sorted(ended)},
    }


def by_round(rows: Sequence[Graded]) -> list[dict[str, Any]]:
    """For each round: its candidates' accuracy and rewards, and coverage of all rounds up to it.

    Accuracy and rewards are over the problems still searching in that round; coverage is over all.
    """
    out = []
    for number in range(max((row.rounds for row in rows), default=0)):
        here = [[c for c in row.candidates if c.round == number] for row in rows]
        rewards = [[c.reward for c in group if c.reward is not None] for group in here]
        sofar = [[c for c in row.candidates if c.round <= number] for row in rows if row.correct is not None]
        out.append(
            {
                "round": number,
                "problems": sum(bool(group) for group in here),
                "accuracy": _mean(c.correct for group in here for c in group),
                "coverage": _mean(any(c.correct for c in group) for group in sofar),
                "reward": _mean(r for group in rewards for r in group),
                "best_reward": _mean(max(group) for group in rewards if group),
            }
        )
    return out


def _by_difficulty(graded: Sequence[Graded]) -> dict[str, Any]:
    levels: dict[str, list[Graded]] = {}
    for row in graded:
        if row.difficulty is not None:
            levels.setdefault(row.difficulty, []).append(row)
    return {
        level: {
            "problems": len(levels[level]),
            **_share("exact_match", [row.correct for row in levels[level]]),
            **_share("coverage", [row.covered() for row in levels[level]]),
        }
        for level in sorted(levels, key=_ease)
    }


def _ease(level: str) -> tuple[int, int, str]:
    """Sorts words from easy to expert and numbers by value."""
    return (WORDS.index(level) if level in WORDS else -1, len(level), level)


def _verifier(graded: Sequence[Graded]) -> dict[str, Any] | None:
    """How far the verifier can be trusted: agreement with gold over all candidates that it scored."""
    scored = [c for row in graded for c in row.candidates if c.verified is not None]
    verdicts = [(c.verified >= 0.5, c.correct) for c in scored]
    if not verdicts:
        return None
    of_right = _mean(said for said, right in verdicts if right)
    of_wrong = _mean(not said for said, right in verdicts if not right)
    return {
        "accuracy": _mean(said == right for said, right in verdicts),
        "base_rate": _mean(right for _, right in verdicts),
        "sensitivity": of_right,
        "specificity": of_wrong,
        "balanced_accuracy": None if of_right is None or of_wrong is None else (of_right + of_wrong) / 2,
    }


def _usage(rows: Sequence[Graded]) -> dict[str, Usage]:
    """By role and in total, over all problems."""
    total: dict[str, Usage] = {}
    for row in rows:
        for role, usage in row.usage.items():
            total[role] = total.get(role, Usage()) + usage
    by_role = {role: total[role] for role in sorted(total)}
    by_role["total"] = sum(by_role.values(), Usage())
    return by_role


def _tokens(by_role: Mapping[str, Usage]) -> dict[str, dict[str, int]]:
    return {
        role: {
            "prompt": usage.prompt_tokens,
            "cached": usage.cached_tokens,
            "generated": usage.generated_tokens,
            "sequences": usage.sequences,
        }
        for role, usage in by_role.items()
    }
