"""A run's results after each round over all problems; a problem that ended earlier keeps its last values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import pandas as pd

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.history import SearchHistory, stored_verdicts
from soft_reasoning.runs.records import read_answers, stored_problem
from soft_reasoning.types import Candidate

STOPPED = "stopped.json"
REPLAYABLE = ("vote", "reward_vote", "best_reward", "verifier")
"""Rules whose answer after a round follows from stored answers, rewards and verdicts."""


def if_stopped(
    records: Iterable[Mapping[str, Any]], grader: AnswerGrader, final: FinalAnswer | None
) -> list[dict[str, Any]]:
    """Return a row per round, counted from 1, with means over all problems.

    ``accuracy`` is the accuracy of the answers that ``final`` would give after the round, with its standard
    error ``stderr``; None if the rule cannot be replayed. ``best_reward`` is the best so far. ``tokens`` are
    the tokens generated so far; a verifier's tokens count in equal parts for each round.
    """
    rows = [row for record in records for row in _rounds(record, grader, final)]
    if not rows:
        return []
    frame: Any = pd.DataFrame(rows, columns=["problem", "round", "right", "best", "tokens"])
    frame = frame.pivot(index="round", columns="problem").astype(float).ffill()
    right = frame["right"].dropna(axis=1, how="all")  # of the problems with a reference answer
    accuracy = right.mean(axis=1, skipna=False)
    means = {
        "accuracy": accuracy,
        "stderr": (accuracy * (1 - accuracy) / (right.shape[1] - 1)) ** 0.5,
        "best_reward": frame["best"].mean(axis=1),
        "tokens": frame["tokens"].mean(axis=1),
    }
    means = pd.DataFrame(means).reset_index().astype(object)
    return means.where(means.notna(), None).to_dict("records")


def _rounds(
    record: Mapping[str, Any], grader: AnswerGrader, final: FinalAnswer | None
) -> Iterator[tuple[Any, ...]]:
    """Yield a problem's row after each of its rounds."""
    problem, stored, trace = stored_problem(record), record["candidates"], record["trace"]
    rounds = max((c["round"] for c in stored), default=0) + 1
    generated = {role: counts["generated_tokens"] for role, counts in record["usage"].items()}
    verifier_tokens = (sum(generated.values()) - generated.get("candidate", 0)) / rounds
    for number in range(1, rounds + 1):
        so_far = [c for c in stored if c["round"] < number]
        part = record if number == rounds else None  # the record of a run that stops here
        if part is None and final is not None and final.rule in REPLAYABLE:
            candidates = [Candidate("", c["answer"], c["round"], reward=c["reward"] or 0.0) for c in so_far]
            texts, entries = [record["resps"][0][: len(so_far)]], trace[:number]
            history = SearchHistory(candidates, stored_verdicts(entries), grader, problem.answer_type)
            part = dict(record, answer=final.choose(history), candidates=so_far, resps=texts, trace=entries)
        right = None if part is None else grader.correct(read_answers(part, grader)[0], problem)
        best = max((c["reward"] for c in so_far if c["reward"] is not None), default=None)
        tokens = sum(c.get("generated_tokens") or 0 for c in so_far)
        yield problem.id, number, right, best, tokens + verifier_tokens * number


def mean_curve(curves: Sequence[Sequence[Mapping[str, Any]]]) -> list[tuple[float, float]]:
    """(tokens, accuracy) after each round, mean over runs; empty unless all accuracies are known."""
    rounds = [[c[min(n, len(c) - 1)] for c in curves] for n in range(max(map(len, curves))) if all(curves)]
    if any(row["accuracy"] is None for rows in rounds for row in rows):
        return []
    return [(fmean(r["tokens"] for r in rows), fmean(r["accuracy"] for r in rows)) for rows in rounds]
