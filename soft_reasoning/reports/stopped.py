"""What a run had after each round over all its problems: those that ended earlier keep what they had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.judged import Judged, verdicts_of
from soft_reasoning.runs.files import read_json
from soft_reasoning.runs.records import answers_of, problem_of
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
    stories = [_story(record, grader, final) for record in records]
    rows = []
    for number in range(max(map(len, stories), default=0)):
        right, best, tokens = zip(*(story[min(number, len(story) - 1)] for story in stories), strict=True)
        known = [float(is_right) for is_right in right if is_right is not None]
        share = fmean(known) if known and len(known) == len(right) else None
        rewards = [reward for reward in best if reward is not None]
        error = None if share is None or len(known) < 2 else sqrt(share * (1 - share) / (len(known) - 1))
        best_reward = fmean(rewards) if rewards else None
        rows.append({"round": number + 1, "accuracy": share, "stderr": error, "best_reward": best_reward,
                     "tokens": fmean(tokens)})  # fmt: skip
    return rows


def read_stopped(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a finished run's report; none for runs of earlier versions."""
    return read_json(folder / STOPPED) if (folder / STOPPED).is_file() else []


def _story(
    record: Mapping[str, Any], grader: AnswerGrader, final: FinalAnswer | None
) -> list[tuple[bool | None, float | None, float]]:
    """(right, best reward, tokens) of one problem after each of its rounds."""
    problem, (final_answer, read) = problem_of(record), answers_of(record, grader)
    stored = record["candidates"]
    rounds = max((c["round"] for c in stored), default=0) + 1
    pairs = zip(read, stored, strict=True)
    kept = [Candidate("", answer, c["round"], reward=c["reward"] or 0.0) for answer, c in pairs]
    usage = {role: counts["generated_tokens"] for role, counts in record["usage"].items()}
    others = sum(count for role, count in usage.items() if role != "candidate") / rounds
    verdicts = verdicts_of(record["trace"])
    story: list[tuple[bool | None, float | None, float]] = []
    for number in range(rounds):
        so_far = [c for c in kept if c.round <= number]
        until = [c for c in stored if c["round"] <= number]
        best = max((c["reward"] for c in until if c["reward"] is not None), default=None)
        spent = sum(c.get("generated_tokens") or 0 for c in until)
        if number + 1 == rounds:
            right = grader.correct(final_answer, problem)
        elif final is None or final.rule not in KNOWN:
            right = None
        else:
            judged = Judged(so_far, verdicts[: number + 1], grader, problem.answer_type)
            right = grader.correct(final.choose(judged), problem)
        story.append((right, best, spent + others * (number + 1)))
    return story


def mean_curve(curves: Sequence[Sequence[Mapping[str, Any]]]) -> list[tuple[float, float]]:
    """(tokens, accuracy) after each round, mean over runs; none unless all accuracies are known."""
    shared = min(map(len, curves), default=0)
    points = [[curve[i] for curve in curves] for i in range(shared)]
    if any(row["accuracy"] is None for rows in points for row in rows):
        return []
    return [(fmean(r["tokens"] for r in rows), fmean(r["accuracy"] for r in rows)) for rows in points]
