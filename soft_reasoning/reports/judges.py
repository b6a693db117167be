"""Weights of an ensemble's parts: fitted to a run's candidates, and compared on questions held out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.reports.calibration import FOLDS, REPORT
from soft_reasoning.reports.statistics import paired_bootstrap
from soft_reasoning.reports.tables import Table, percent
from soft_reasoning.rewards.ensemble.fitted import FittedWeights, fit
from soft_reasoning.rewards.history import same_answers
from soft_reasoning.runs.files import write_text
from soft_reasoning.runs.records import read_answers, stored_problem
from soft_reasoning.types import UserError

Values: TypeAlias = Mapping[str, float | None]
Score: TypeAlias = Callable[[Values], float]


@dataclass(frozen=True)
class JudgedQuestion:
    """The candidates of a question that have an answer.

    Attributes:
        id: The question's id.
        groups: For each candidate, the number of its answer; equal answers have one number.
        right: Whether each is right.
        values: Its score by each part.
    """

    id: str
    groups: Sequence[int]
    right: Sequence[bool]
    values: Sequence[Values]


def judged_questions(
    records: Iterable[Mapping[str, Any]], parts: Sequence[str], grader: AnswerGrader
) -> list[JudgedQuestion]:
    """Read the candidates of a run with an ensemble; questions without an answer are left out."""
    rows: list[JudgedQuestion] = []
    for record in records:
        problem, (_, answers) = stored_problem(record), read_answers(record, grader)
        part_values = [values for entry in record["trace"] for values in _by_candidate(entry, parts)]
        group_of: dict[int, int] = {}
        for number, group in enumerate(same_answers(answers, grader, problem.answer_type)):
            group_of |= dict.fromkeys(group, number)
        kept = sorted(group_of)
        if kept and len(part_values) == len(answers):
            right = [bool(grader.correct(answers[i], problem)) for i in kept]
            rows.append(
                JudgedQuestion(problem.id, [group_of[i] for i in kept], right, [part_values[i] for i in kept])
            )
    return rows


def _by_candidate(entry: Mapping[str, Any], parts: Sequence[str]) -> list[Values]:
    stored = (entry.get("verifier") or {}).get("parts") or {}
    return [{part: stored[part][i] for part in parts} for i in range(len(entry["rewards"]))] if stored else []


def fitted_scores(rows: Sequence[JudgedQuestion], parts: Sequence[str]) -> list[list[float]]:
    """Return each candidate's probability by weights fitted to the other folds of the questions."""
    scores: list[list[float]] = [[] for _ in rows]
    for fold in range(FOLDS):
        fitted = fitted_to([row for i, row in enumerate(rows) if i % FOLDS != fold], parts)
        for i in range(fold, len(rows), FOLDS):
            scores[i] = [fitted.probability(values) for values in rows[i].values]
    return scores


def fitted_to(
    rows: Sequence[JudgedQuestion],
    parts: Sequence[str],
    made_for: Mapping[str, Any] | None = None,
    questions: Mapping[str, str] | None = None,
) -> FittedWeights:
    """Return the weights fitted to ``rows``."""
    candidates = [(row, i) for row in rows for i in range(len(row.right))]
    weights, means, bias = fit(
        [row.values[i] for row, i in candidates],
        [row.right[i] for row, i in candidates],
        [row.id for row, _ in candidates],
        parts,
    )
    return FittedWeights(weights, means, bias, made_for or {}, questions or {})


def auc(rows: Sequence[JudgedQuestion], scores: Sequence[Sequence[float]]) -> float | None:
    """How often a right candidate scores higher than a wrong one of its question; ties are half.

    It is the mean over the questions that have both kinds; None without any.
    """
    values: list[float] = []
    for row, row_scores in zip(rows, scores, strict=True):
        right = [s for s, good in zip(row_scores, row.right, strict=True) if good]
        wrong = [s for s, good in zip(row_scores, row.right, strict=True) if not good]
        if right and wrong:
            values.append(fmean((a > b) + 0.5 * (a == b) for a in right for b in wrong))
    return fmean(values) if values else None


def vote(rows: Sequence[JudgedQuestion], scores: Sequence[Sequence[float]]) -> list[float]:
    """Whether the answer of the largest sum of scores is right, for each question."""
    solved: list[float] = []
    for row, row_scores in zip(rows, scores, strict=True):
        totals: dict[int, float] = {}
        for group, score in zip(row.groups, row_scores, strict=True):
            totals[group] = totals.get(group, 0.0) + score
        solved.append(float(row.right[row.groups.index(max(totals, key=totals.__getitem__))]))
    return solved


def best(rows: Sequence[JudgedQuestion], scores: Sequence[Sequence[float]]) -> list[float]:
    """Whether the candidate of the highest score is right, for each question."""
    return [
        float(row.right[max(range(len(row_scores)), key=row_scores.__getitem__)])
        for row, row_scores in zip(rows, scores, strict=True)
    ]


def report_judges(
    rows: Sequence[JudgedQuestion],
    parts: Sequence[str],
    configured: Score,
    fitted: FittedWeights,
    folder: Path,
    file: Path,
) -> None:
    """Print the table of judges and the fitted weights, and write them to ``folder``.

    Raises:
        UserError: If there are fewer questions than folds.
    """
    if len(rows) < FOLDS:
        raise UserError(
            f"calibrate: expected at least {FOLDS} questions with an answer, got {len(rows)}; raise limit"
        )
    judged: dict[str, list[list[float]]] = {"majority": [[1.0] * len(row.right) for row in rows]}
    for part in parts:
        judged[f"{part} alone"] = [[value[part] or 0.0 for value in row.values] for row in rows]
    judged["configured weights"] = [[configured(value) for value in row.values] for row in rows]
    judged["fitted, held out"] = fitted_scores(rows, parts)
    columns = ("judge", "AUC within questions", "best candidate right (%)", "vote right (%)")
    table = Table(
        columns,
        [
            (
                name,
                "-" if (area := auc(rows, values)) is None else f"{area:.3f}",
                percent(fmean(best(rows, values))),
                percent(fmean(vote(rows, values))),
            )
            for name, values in judged.items()
        ],
    )
    weights = Table(
        ("part", "log-odds per unit", "value without a score"),
        [(part, f"{fitted.weights[part]:.3g}", f"{fitted.means[part]:.3g}") for part in parts],
    )
    gain = paired_bootstrap(vote(rows, judged["fitted, held out"]), vote(rows, judged["configured weights"]))
    summary = (
        f"Fitted to {len(rows)} questions. On questions that they were not fitted to, votes by the fitted "
        f"weights are right {100 * gain.difference:+.1f} points more often than by the configured ones "
        f"(95 % interval {100 * gain.low:+.1f} to {100 * gain.high:+.1f}).\nUse them on other questions: "
        f"verifier.fitted={file}"
    )
    print(f"{table.text()}\n\n{weights.text()}\n\n{summary}")
    parts_of_report = [
        "# Calibration of the ensemble",
        table.markdown(),
        "## Fitted weights",
        weights.markdown(),
        summary,
    ]
    write_text(folder / REPORT, "\n\n".join(parts_of_report) + "\n")
