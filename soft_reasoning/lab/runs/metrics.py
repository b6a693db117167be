"""Metrics of a run from its graded problems, so that a finished run can be graded again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pandas as pd

from soft_reasoning.lab.runs.files import Json
from soft_reasoning.lab.runs.records import COVERAGE_AT, Graded

Frame: TypeAlias = Any
"""A DataFrame or a Series of pandas, whose annotations lack the type of a column."""

PROBLEM = ("correct", "covered", "covered_first", "answers", "rounds")
CANDIDATE = ("round", "reward", "cut_at", "approved", "new")
"""Numbers of a problem, and the lists of a :class:`Graded` with a value per candidate."""

TOKENS = {
    "prompt": "prompt_tokens",
    "cached": "cached_tokens",
    "generated": "generated_tokens",
    "sequences": "sequences",
    "replayed": "replayed_tokens",
}
"""Names of counts in the results, by which tables know those of a graded problem."""


def measure(graded: Iterable[Graded], *, costs: Json | None = None, independent: bool = False) -> Json:
    """Return plain values, of which shares are over problems with a reference answer; None where undefined.

    The order of problems does not change any digit.

    Args:
        graded: The graded problems.
        costs: ``seconds`` and ``peak_bytes`` by kind, as in ``costs.json``. The seconds ``engine`` are spent
            waiting for the engine.
        independent: Whether the first round's candidates are i.i.d. samples, as pass@m requires.
    """
    rows, costs = sorted(graded, key=lambda row: row.id), costs or {}
    problems = _numeric([_problem(row) for row in rows], ["answer", "difficulty", "question"], PROBLEM)
    candidates = _candidates(rows)
    with_gold = problems[problems["correct"].notna()]
    graded_candidates = candidates[candidates["correct"].notna()]
    ended = problems["rounds"].value_counts(normalize=True).sort_index()
    return {
        "problems": len(rows),
        "graded": len(with_gold),
        "questions": with_gold["question"].nunique(),
        "exact_match": _mean(with_gold["correct"]),
        "coverage": _mean(with_gold["covered"]),
        f"coverage@{COVERAGE_AT}": _mean(with_gold["covered_first"]),
        **(_pass(graded_candidates, len(with_gold)) if independent else {}),
        "unparsed": _mean(problems["answer"].isna()),
        "candidates": len(candidates) / len(rows) if rows else None,
        "texts": float(candidates["new"].sum()) / len(rows) if rows else None,
        "answers": _mean(problems["answers"]),
        "candidate_accuracy": _mean(graded_candidates["correct"]),
        "cut": {
            "candidates": int(candidates["cut_at"].count()),
            "tokens": int(candidates["cut_at"].fillna(0).max()) if len(candidates) else 0,
        },
        "rounds": {
            "mean": _mean(problems["rounds"]),
            "share_ended_after": {str(int(n)): float(part) for n, part in ended.items()},
        },
        "by_round": _by_round(problems, candidates),
        "after_each_round": _after_each_round(rows),
        "decided": _mean(pd.Series([part for row in rows for part in row.decided], dtype=float)),
        "by_difficulty": {
            level: {
                "problems": len(group),
                "questions": group["question"].nunique(),
                "exact_match": _mean(group["correct"]),
                "coverage": _mean(group["covered"]),
            }
            for level, group in with_gold.groupby("difficulty", sort=False)
        },
        "verifier": _verifier(graded_candidates),
        "tokens": _tokens(rows),
        "seconds": dict(costs.get("seconds", {})),
        "peak_bytes": {kind: costs.get("peak_bytes", {}).get(kind) for kind in ("kv", "activations")},
    }


def _numeric(rows: Sequence[Json], texts: Sequence[str], numbers: Sequence[str]) -> Frame:
    """A table of these columns; NaN stands for None in columns of numbers."""
    frame = pd.DataFrame(rows, columns=[*texts, *numbers], dtype=object)
    return frame.astype(dict.fromkeys(numbers, float))


def _problem(row: Graded) -> Json:
    first = any(right for _, right in row.candidates[:COVERAGE_AT])
    return {**vars(row), "rounds": row.rounds, "covered_first": first, "question": row.question or row.id}


def _candidates(rows: Sequence[Graded]) -> Frame:
    """A row per candidate, with the number of its ``problem``."""
    parts = [
        {"problem": i, "answer": answer, "correct": correct, **dict(zip(CANDIDATE, values, strict=True))}
        for i, row in enumerate(rows)
        for (answer, correct), *values in zip(
            row.candidates, *(getattr(row, name) for name in CANDIDATE), strict=True
        )
    ]
    return _numeric(parts, ["answer"], ["problem", "correct", *CANDIDATE])


def _tokens(rows: Sequence[Graded]) -> dict[str, dict[str, int]]:
    """Counts by role, and their ``total``: what the method costs without a store of completions.

    ``replayed`` are those of the ``generated`` tokens that came from a store.
    """
    tokens: dict[str, dict[str, int]] = {}
    for role in sorted({role for row in rows for role in row.usage}):
        used = [row.usage[role] for row in rows if role in row.usage]
        tokens[role] = {name: sum(counts[key] for counts in used) for name, key in TOKENS.items()}
    total = {name: sum(counts[name] for counts in tokens.values()) for name in TOKENS}
    return {**tokens, "total": total}


def _mean(values: Frame) -> float | None:
    """The mean of the ``values`` that are known."""
    return _finite(values.mean())


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _pass(graded: Frame, problems: int) -> dict[str, float | None]:
    """pass@m for m = 1, 2, 4, ..., ``COVERAGE_AT`` and the largest number of samples that every problem has.

    Only the first round counts: later rounds depend on its results, which would bias the estimate.
    """
    counts = graded[graded["round"] == 0].groupby("problem")["correct"].agg(["sum", "size"]).astype(int)
    least = int(counts["size"].min()) if len(counts) == problems > 0 else 0
    sizes = {m for m in (*(2**i for i in range(least.bit_length())), COVERAGE_AT, least) if 1 <= m <= least}
    return {
        f"pass@{m}": _mean(pd.Series([pass_at(n, right, m) for right, n in counts.to_numpy()]))
        for m in sorted(sizes)
    }


def _by_round(problems: Frame, candidates: Frame) -> list[Json]:
    """For each round: accuracy and rewards of its candidates, and coverage of all rounds up to it.

    Accuracy and rewards are over the problems that reach the round, coverage over all problems.
    """
    graded = int(problems["correct"].notna().sum())
    first = candidates[candidates["correct"] == 1].groupby("problem")["round"].min()
    return [
        {
            "round": int(number),
            "problems": group["problem"].nunique(),
            "accuracy": _mean(group["correct"]),
            "coverage": float((first <= number).sum()) / graded if graded else None,
            "reward": _mean(group["reward"]),
            "best_reward": _mean(group.groupby("problem")["reward"].max()),
        }
        for number, group in candidates.groupby("round")
    ]


def _after_each_round(graded: Sequence[Graded]) -> list[Json]:
    """For each round, means over all problems if all searches had ended after it.

    A problem that ended earlier keeps its last values. ``accuracy`` is None if the final rule cannot be
    replayed. ``tokens`` are those generated so far.
    """
    rows = [
        {"problem": i, "round": number, **values}
        for i, row in enumerate(graded)
        for number, values in enumerate(row.after_rounds, start=1)
    ]
    if not rows:
        return []
    frame: Frame = pd.DataFrame(rows).pivot(index="round", columns="problem").astype(float).ffill()
    right = frame["correct"].dropna(axis=1, how="all")  # of the problems with a reference answer
    accuracy = right.mean(axis=1, skipna=False)
    return [
        {
            "round": number,
            "accuracy": _finite(accuracy[number]),
            "best_reward": _mean(row["best_reward"]),
            "tokens": _mean(row["tokens"]),
        }
        for number, row in frame.iterrows()
    ]


def _verifier(candidates: Frame) -> dict[str, float | None] | None:
    """Compare the verifier with gold over the first round's candidates, which every problem has."""
    first = candidates[(candidates["round"] == 0) & candidates["approved"].notna()]
    if first.empty:
        return None
    right = first["correct"] == 1
    return {
        "accuracy": _mean(first["approved"] == first["correct"]),
        "base_rate": _mean(right),
        "sensitivity": _mean(first["approved"][right]),
        "specificity": _mean(1 - first["approved"][~right]),
    }


def equal_samples(measured: Json, samples: int, reference: Json) -> int:
    """Return the number of samples (at least 1) that generates as many tokens per problem as ``reference``.

    Args:
        measured: Metrics, as in ``results.json``, of a run with ``samples`` samples. Tokens, including a
            verifier's, are assumed to grow in proportion to samples.
        samples: The samples of that run.
        reference: Metrics of the reference.
    """
    spent, wanted = (
        metrics["tokens"]["total"]["generated"] / metrics["problems"] for metrics in (measured, reference)
    )
    return max(1, round(samples * wanted / (spent or 1)))


def pass_at(n: int, correct: int, m: int) -> float:
    """Return the chance that ``m`` of ``n`` i.i.d. samples, ``correct`` of them right, include a correct one.

    1 - C(n - c, m) / C(n, m) for 1 <= m <= n, unbiased (Chen et al. 2021).
    """
    return 1.0 - math.comb(n - correct, m) / math.comb(n, m)
