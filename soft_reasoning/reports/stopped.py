"""What a run had after each round over all its problems: those that ended earlier keep what they had."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.judged import Judged, verdicts_of
from soft_reasoning.runs.files import read_json
from soft_reasoning.runs.records import read_answers, stored_problem
from soft_reasoning.types import Candidate

STOPPED = "stopped.json"
KNOWN = ("vote", "reward_vote", "best_reward", "verifier")
"""Rules whose answer after a round follows from answers and rewards alone."""


def if_stopped(
    records: Iterable[Mapping[str, Any]], grader: AnswerGrader, final: FinalAnswer | None
) -> list[dict[str, Any]]:
    """Return a row per round, counted from 1, each the mean over all problems.

    ``accuracy`` is that of the answers which ``final`` would have given after the round, with its standard
    error ``stderr``; None where that rule is not known. ``best_reward`` is the best so far. ``tokens`` are
    generated until then; a verifier's count in equal parts for each round.
    """
    rows = [row for record in records for row in _rounds(record, grader, final)]
    if not rows:
        return []
    columns = ["problem", "round", "right", "best", "tokens"]
    frame: Any = pd.DataFrame(rows, columns=columns).pivot(index="round", columns="problem")
    frame = frame.astype(float).ffill()
    accuracy, problems = frame["right"].mean(axis=1, skipna=False), frame["right"].shape[1]
    means = {
        "accuracy": accuracy,
        "stderr": (accuracy * (1 - accuracy) / (problems - 1)) ** 0.5,
        "best_reward": frame["best"].mean(axis=1),
        "tokens": frame["tokens"].mean(axis=1),
    }
    means = pd.DataFrame(means).reset_index().astype(object)
    return means.where(means.notna(), None).to_dict("records")


def _rounds(
    record: Mapping[str, Any], grader: AnswerGrader, final: FinalAnswer | None
) -> Iterator[tuple[Any, ...]]:
    """Yield a row of one problem after each of its rounds."""
    problem, (final_answer, read) = stored_problem(record), read_answers(record, grader)
    stored, verdicts = record["candidates"], verdicts_of(record["trace"])
    rounds = max((c["round"] for c in stored), default=0) + 1
    generated = {role: counts["generated_tokens"] for role, counts in record["usage"].items()}
    others = (sum(generated.values()) - generated.get("candidate", 0)) / rounds
    for number in range(1, rounds + 1):
        until = [(c, answer) for c, answer in zip(stored, read, strict=True) if c["round"] < number]
        answer, known = final_answer, number == rounds
        if not known and final is not None and final.rule in KNOWN:
            candidates = [Candidate("", answer, c["round"], reward=c["reward"] or 0.0) for c, answer in until]
            answer = final.choose(Judged(candidates, verdicts[:number], grader, problem.answer_type))
            known = True
        right = grader.correct(answer, problem) if known else None
        best = max((c["reward"] for c, _ in until if c["reward"] is not None), default=None)
        tokens = sum(c.get("generated_tokens") or 0 for c, _ in until)
        yield problem.id, number, right, best, tokens + others * number


def read_stopped(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a finished run's report; none for runs of earlier versions."""
    return read_json(folder / STOPPED) if (folder / STOPPED).is_file() else []


def mean_curve(curves: Sequence[Sequence[Mapping[str, Any]]]) -> list[tuple[float, float]]:
    """(tokens, accuracy) after each round, mean over runs; none unless all accuracies are known."""
    rounds = list(zip(*curves, strict=False))
    if any(row["accuracy"] is None for rows in rounds for row in rows):
        return []
    return [(fmean(r["tokens"] for r in rows), fmean(r["accuracy"] for r in rows)) for rows in rounds]
