"""Metrics of a run from its graded records, so that a finished run can be graded again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from soft_reasoning.answers import MODES
from soft_reasoning.lab.runs.grading import WRONG_REASONS
from soft_reasoning.lab.runs.records import COVERAGE_AT, MEMORY, Graded
from soft_reasoning.types import UserError

DIFFICULTIES = ("easy", "medium", "hard", "expert", "extreme")
"""Names of difficulties, in order."""

Frame: TypeAlias = Any
Series: TypeAlias = Any
"""Types of pandas, whose annotations lack the type of a column."""

PROBLEM = ("correct", "covered", "covered_first", "answers", "one_text", "rounds")
CANDIDATE = ("round", "reward", "cut_at", "approved", "length", "new", "expected")
"""Numbers of a problem, and the lists of a :class:`Graded` with a value per candidate."""

SHARES = {"exact_match": "correct", "coverage": "covered"}
TOKENS = {
    "prompt": "prompt_tokens",
    "cached": "cached_tokens",
    "generated": "generated_tokens",
    "sequences": "sequences",
    "replayed": "replayed_tokens",
}
"""Names in the results, by which tables know the columns and the counts of a graded problem."""


def measure(
    graded: Iterable[Graded], *, costs: Mapping[str, Any] | None = None, independent: bool = False
) -> dict[str, Any]:
    """Return plain values, with ``_stderr`` next to each share; None where undefined.

    The order of problems does not change any digit.

    Args:
        graded: The graded problems.
        costs: ``seconds`` and ``peak_bytes`` by kind, as in ``costs.json``. The seconds ``engine`` are spent
            waiting for the engine. ``idle`` is all other time, an upper bound of the engine's idle time,
            since an engine in a separate process (vLLM on a GPU) may work meanwhile.
        independent: Whether the first round's candidates are i.i.d. samples, as pass@m requires.
    """
    rows = sorted(graded, key=lambda row: row.id)
    problems = _frame(map(_problem, rows), ["answer", "difficulty", "wrong"], PROBLEM)
    candidates = _candidates(rows)
    with_gold = problems[problems["correct"].notna()]
    graded_candidates = candidates[candidates["correct"].notna()]
    ended = problems["rounds"].value_counts(normalize=True).sort_index()
    return {
        "problems": len(rows),
        "graded": len(with_gold),
        **_shares(with_gold, SHARES | {f"coverage@{COVERAGE_AT}": "covered_first"}),
        **(_pass(graded_candidates, len(with_gold)) if independent else {}),
        "unparsed": _mean(problems["answer"].isna()),
        "candidates": len(candidates) / len(rows) if rows else None,
        "texts": float(candidates["new"].sum()) / len(rows) if rows else None,
        "answers": _mean(problems["answers"]),
        "one_text": _mean(problems["one_text"]),
        "candidate_accuracy": _mean(graded_candidates["correct"]),
        "cut": {"candidates": int(candidates["cut_at"].count()), "tokens": _most(candidates["cut_at"])},
        "candidate_unparsed": _mean(candidates["answer"].isna()),
        "extraction": _by_extraction(rows),
        "rounds": {
            "mean": _mean(problems["rounds"]),
            "share_ended_after": {str(int(n)): float(part) for n, part in ended.items()},
        },
        "by_round": _by_round(problems, candidates),
        "after_each_round": _after_each_round(rows),
        "decided": _mean(pd.Series([part for row in rows for part in row.decided], dtype=float)),
        "tied": _mean(pd.Series([part for row in rows for part in row.tied], dtype=float)),
        "auc": _auc(graded_candidates),
        "by_difficulty": {
            level: {"problems": len(group), **_shares(group, SHARES)}
            for level, group in sorted(with_gold.groupby("difficulty"), key=lambda x: difficulty_key(x[0]))
        },
        "verifier": _verifier(graded_candidates),
        "wrong": {reason: _mean(with_gold["wrong"] == reason) for reason in WRONG_REASONS},
        **_costs(rows, costs or {}),
    }


def _frame(rows: Iterable[Mapping[str, Any]], texts: Sequence[str], numbers: Sequence[str]) -> Frame:
    """A table of these columns; NaN stands for None in columns of numbers."""
    frame = pd.DataFrame([*rows], columns=[*texts, *numbers], dtype=object)
    return frame.astype(dict.fromkeys(numbers, float))


def _problem(row: Graded) -> dict[str, Any]:
    first = any(right for _, right in row.candidates[:COVERAGE_AT])
    return {**vars(row), "rounds": row.rounds, "covered_first": first}


def _candidates(rows: Sequence[Graded]) -> Frame:
    """A row per candidate, with the number of its ``problem``."""
    lists = _frame(map(vars, rows), ["candidates", *CANDIDATE], ())
    frame = lists.explode([*lists]).dropna(subset="round").rename_axis("problem").reset_index()
    pairs = frame.pop("candidates").str
    return frame.assign(correct=pairs[1]).astype(float).assign(answer=pairs[0])


def _most(values: Series) -> int:
    return int(values.max()) if values.count() else 0


def _costs(rows: Sequence[Graded], costs: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens by role, seconds and memory.

    ``replayed`` are those of the ``generated`` tokens that came from a store of completions. Tokens are what
    the method costs without a store; seconds are what the run took with it.
    """
    roles = sorted({role for row in rows for role in row.usage})
    tokens = {
        role: {
            name: sum(row.usage[role][count] for row in rows if role in row.usage)
            for name, count in TOKENS.items()
        }
        for role in roles
    }
    tokens["total"] = {name: sum(counts[name] for counts in tokens.values()) for name in TOKENS}
    seconds, peaks = dict(costs.get("seconds", {})), costs.get("peak_bytes", {})
    if "engine" in seconds:
        seconds["idle"] = max(0.0, seconds["total"] - seconds["engine"])
    return {
        "tokens": tokens,
        "seconds": seconds,
        "peak_bytes": {kind: peaks.get(kind) for kind in MEMORY},
    }


def share(name: str, values: Series) -> dict[str, float | None]:
    """Mean and standard error of ``values`` that are not NaN, as in lm-evaluation-harness."""
    return {name: _mean(values), f"{name}_stderr": _finite(values.astype(float).sem())}


def _shares(frame: Frame, columns: Mapping[str, str]) -> dict[str, float | None]:
    """The :func:`share` of each column, with the names of the results."""
    return {key: x for name, column in columns.items() for key, x in share(name, frame[column]).items()}


def _mean(values: Series) -> float | None:
    return _finite(values.mean())


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _by_extraction(rows: Sequence[Graded]) -> dict[str, dict[str, float | None]]:
    """Accuracy, coverage and unparsed answers for each way of extracting answers."""
    numbers = ("correct", "covered", "parsed", "candidates", "candidates_parsed")
    readings = _frame((reading for row in rows for reading in row.readings), ["mode"], numbers)
    metrics: dict[str, dict[str, float | None]] = {}
    for mode in dict.fromkeys([*MODES, *readings["mode"]]):
        group = readings[readings["mode"] == mode]
        candidates = group["candidates"].sum()
        metrics[mode] = {
            **_shares(group, SHARES),
            "unparsed": _mean(1 - group["parsed"]),
            "candidate_unparsed": 1 - group["candidates_parsed"].sum() / candidates if candidates else None,
        }
    return metrics


def _pass(graded: Frame, problems: int) -> dict[str, float | None]:
    """pass@m for m = 1, 2, 4, ..., ``COVERAGE_AT`` and the largest number of samples that every problem has.

    Only the first round counts: later rounds depend on its results, which would bias the estimate.
    """
    counts = graded[graded["round"] == 0].groupby("problem")["correct"].agg(["sum", "size"]).astype(int)
    least = int(counts["size"].min()) if len(counts) == problems > 0 else 0
    sizes = {m for m in (*(2**i for i in range(least.bit_length())), COVERAGE_AT, least) if 1 <= m <= least}
    metrics: dict[str, float | None] = {}
    for m in sorted(sizes):
        metrics |= share(f"pass@{m}", pd.Series([pass_at(n, right, m) for right, n in counts.to_numpy()]))
    return metrics


def _by_round(problems: Frame, candidates: Frame) -> list[dict[str, Any]]:
    """For each round: accuracy and rewards of its candidates, and coverage of all rounds up to it.

    Accuracy, rewards and lengths |u| are over the problems that reach the round, coverage over all problems.
    """
    graded = int(problems["correct"].notna().sum())
    rounds = range(int(problems["rounds"].max() if len(problems) else 0))
    by_round = candidates.groupby("round")
    table: Frame = by_round[["correct", "reward", "length"]].mean().reindex(rounds)
    table["best"] = candidates.groupby(["round", "problem"])["reward"].max().groupby("round").mean()
    table["problems"] = by_round["problem"].nunique()
    first = candidates[candidates["correct"] == 1].groupby("problem")["round"].min()
    return [
        {
            "round": number,
            "problems": int(row["problems"]) if row["problems"] > 0 else 0,
            "accuracy": _finite(row["correct"]),
            "coverage": float((first <= number).sum()) / graded if graded else None,
            "reward": _finite(row["reward"]),
            "best_reward": _finite(row["best"]),
            "length": _finite(row["length"]),
        }
        for number, row in table.iterrows()
    ]


def _after_each_round(graded: Sequence[Graded]) -> list[dict[str, Any]]:
    """For each round, means over all problems if all searches had ended after it.

    A problem that ended earlier keeps its last values. ``accuracy``, with its standard error ``stderr``, is
    None if the final rule cannot be replayed. ``tokens`` are those generated so far.
    """
    rows = [
        {"problem": i, "round": number, **values}
        for i, row in enumerate(graded)
        for number, values in enumerate(row.after_rounds, start=1)
    ]
    if not rows:
        return []
    frame: Any = pd.DataFrame(rows).pivot(index="round", columns="problem").astype(float).ffill()
    right = frame["correct"].dropna(axis=1, how="all")  # of the problems with a reference answer
    accuracy = right.mean(axis=1, skipna=False)
    means = {
        "accuracy": accuracy,
        "stderr": (accuracy * (1 - accuracy) / (right.shape[1] - 1)) ** 0.5,
        "best_reward": frame["best_reward"].mean(axis=1),
        "tokens": frame["tokens"].mean(axis=1),
    }
    means = pd.DataFrame(means).reset_index().astype(object)
    return means.where(means.notna(), None).to_dict("records")


def _auc(candidates: Frame) -> dict[str, float | None]:
    """How often the surrogate expected more of a correct than of a wrong candidate of the same round.

    A tie counts half. ``new`` leaves out candidates whose text an earlier candidate had.
    """
    predicted = candidates[candidates["expected"].notna()]
    right, wrong = predicted[predicted["correct"] == 1], predicted[predicted["correct"] == 0]
    pairs = right.merge(wrong, on=["problem", "round"], suffixes=("", "_wrong"))
    higher = np.sign(pairs["expected"] - pairs["expected_wrong"]) / 2 + 0.5
    return {"all": _mean(higher), "new": _mean(higher[pairs["new"] * pairs["new_wrong"] == 1])}


def _verifier(candidates: Frame) -> dict[str, float | None] | None:
    """Compare the verifier with gold over the first round's candidates, which every problem has.

    ``approved_where_none_is_right`` is over all rounds: how often the verifier approves a candidate in a
    round without a correct candidate.
    """
    first = candidates[(candidates["round"] == 0) & candidates["approved"].notna()]
    if first.empty:
        return None
    right = first["correct"] == 1
    sensitivity, specificity = first["approved"][right].mean(), 1 - first["approved"][~right].mean()
    rounds = candidates.groupby(["problem", "round"])[["approved", "correct"]].max()
    return {
        "accuracy": _mean(first["approved"] == first["correct"]),
        "base_rate": _mean(right),
        "sensitivity": _finite(sensitivity),
        "specificity": _finite(specificity),
        "balanced_accuracy": _finite((sensitivity + specificity) / 2),
        "approved_where_none_is_right": _mean(rounds["approved"][rounds["correct"] == 0]),
    }


def equal_samples(probe: Mapping[str, Any], samples: int, reference: Mapping[str, Any]) -> int:
    """Return the number of samples (at least 1) that generates as many tokens per problem as ``reference``.

    Args:
        probe: Metrics, as in ``results.json``, of a run with ``samples`` samples. Tokens, including a
            verifier's, are assumed to grow in proportion to samples.
        samples: The samples of that run.
        reference: Metrics of the reference.

    Raises:
        UserError: If the samples had no tokens.
    """
    spent, wanted = (
        metrics["tokens"]["total"]["generated"] / metrics["problems"] for metrics in (probe, reference)
    )
    if spent == 0:
        raise UserError("budget=equal: expected samples with tokens, got empty ones; use budget=own")
    return max(1, round(samples * wanted / spent))


def pass_at(n: int, correct: int, m: int) -> float:
    """Return the chance that ``m`` of ``n`` i.i.d. samples, ``correct`` of them right, include a correct one.

    1 - C(n - c, m) / C(n, m) for 1 <= m <= n, unbiased (Chen et al. 2021).
    """
    return 1.0 - math.comb(n - correct, m) / math.comb(n, m)


def difficulty_key(level: str) -> tuple[int, int, str]:
    """Return a key that sorts words from easy to expert and numbers by value."""
    return (DIFFICULTIES.index(level) if level in DIFFICULTIES else -1, len(level), level)
