"""Calibration: comparing settings of the search, recommending a setting, and choosing a portfolio of points.

Without labels every distinct answer to a question counts as right. Agreement with the most frequent answer
would choose points that all give the same answers (experiments/results/search.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from scipy.stats import hypergeom

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.reports.statistics import paired_bootstrap
from soft_reasoning.reports.tables import Table, percent
from soft_reasoning.rewards.history import same_answers
from soft_reasoning.runs.files import write_text
from soft_reasoning.types import Problem

REPORT = "calibration.md"
TEMPERATURE, DECODING = "temperature", "decoding.temperature"
METHODS = {
    TEMPERATURE: "of sampling without a soft token (method=self_consistency)",
    DECODING: "of sampling after a soft token (the search)",
}
"""What each temperature is for."""
FEW = 30
"""Number of questions below which differences between settings are mostly chance."""
FOLDS = 4
"""Number of folds in cross-validation of a portfolio."""
SLACK = 0.01
"""Unparsed answers of a recommended setting may exceed the default's share by this much."""
ROUND = 5
"""Number of tries in coverage, the candidates of a round."""

Answers = Sequence[Sequence[str | None]]
"""Q rows of M answers."""


@dataclass(frozen=True)
class Tries:
    """The answers of a setting to Q questions with M tries each.

    Attributes:
        answers: Q rows of M answers, equal if they mean the same; None for an unparsed answer.
        correct: Q rows of M values, or None without labels.
    """

    answers: Answers
    correct: Sequence[Sequence[bool]] | None

    @classmethod
    def of(
        cls,
        rows: Sequence[tuple[Problem, Sequence[Mapping[str, Any]]]],
        number: int,
        grader: AnswerGrader,
        labels: bool,
    ) -> Tries:
        """Return the tries of setting ``number``: the candidates of that round in each problem's row."""
        answers: list[list[str | None]] = []
        correct: list[list[bool]] = []
        for problem, candidates in rows:
            parsed = [c["answer"] for c in candidates if c["round"] == number]
            correct.append([bool(grader.correct(answer, problem)) for answer in parsed])
            for group in same_answers(parsed, grader, problem.answer_type):
                for i in group:
                    parsed[i] = parsed[group[0]]
            answers.append(parsed)
        return cls(answers, correct if labels else None)

    @property
    def distinct(self) -> list[float]:
        """Number of distinct answers to each question, over M."""
        return [len(set(row) - {None}) / len(row) for row in self.answers]

    @property
    def unparsed(self) -> float:
        """Share of tries without an answer."""
        return fmean(answer is None for row in self.answers for answer in row)

    @property
    def useful(self) -> Answers:
        """The answers that count: all, or with labels the right answers; None in place of the others."""
        if self.correct is None:
            return self.answers
        pairs = (zip(*rows, strict=True) for rows in zip(self.answers, self.correct, strict=True))
        return [[answer if right else None for answer, right in row] for row in pairs]

    def scores(self, k: int = ROUND) -> list[float]:
        """Return the score by which settings are compared, for each question.

        It is the chance that k tries, drawn at random, solve it or, without labels, ``distinct``.
        """
        if self.correct is None:
            return self.distinct
        return [float(hypergeom.sf(0, len(row), sum(row), min(k, len(row)))) for row in self.correct]

    def coverage(self, k: int = ROUND) -> float | None:
        """Return the share of questions that k tries, drawn at random, solve; None without labels."""
        return None if self.correct is None else fmean(self.scores(k))

    def first(self, count: int) -> Tries:
        """Return the first ``count`` tries of each question."""
        correct = None if self.correct is None else [row[:count] for row in self.correct]
        return Tries([row[:count] for row in self.answers], correct)


def greedy_cover(answers: Answers, count: int) -> list[int]:
    """Choose tries greedily, each with the most new ``answers``; the first wins a tie.

    Answers of earlier choices do not count again.
    """
    columns = zip(*answers, strict=True)
    gains = [{(q, answer) for q, answer in enumerate(column) if answer is not None} for column in columns]
    covered: set[tuple[int, str | None]] = set()
    chosen: list[int] = []
    for _ in range(count):
        left = [j for j in range(len(gains)) if j not in chosen]
        chosen.append(max(left, key=lambda j: len(gains[j] - covered)))
        covered |= gains[chosen[-1]]
    return chosen


def held_out(answers: Answers, count: int) -> float:
    """Return the share of questions that a portfolio of ``count`` points solves, by cross-validation.

    It is chosen on three quarters of the questions and measured on the rest, four times.
    """
    solved = 0
    for fold in range(FOLDS):
        chosen = greedy_cover([row for q, row in enumerate(answers) if q % FOLDS != fold], count)
        solved += sum(any(row[j] is not None for j in chosen) for row in answers[fold::FOLDS])
    return solved / len(answers)


def recommend(settings: Mapping[str, Tries], default: str | None) -> tuple[str, str]:
    """Return the best of several settings, and the reason in words.

    With labels it has the highest coverage. Without, it has the most distinct answers among the settings
    with hardly more unparsed answers than the ``default``. The default is recommended unless the best setting
    is significantly better; without a default, values not significantly worse than the best are ties.
    """
    limit = 1.0 if default is None else settings[default].unparsed + SLACK
    labels = all(tries.correct is not None for tries in settings.values())
    allowed = [value for value, tries in settings.items() if labels or tries.unparsed <= limit]
    best = max(allowed, key=lambda value: fmean(settings[value].scores()))
    ties = [value for value in allowed if value != best and default is None and _tied(settings, best, value)]
    tie = f"; not significantly better than {', '.join(ties)}" if ties else ""
    if default is not None and default != best:
        gap = paired_bootstrap(settings[best].scores(), settings[default].scores())
        if gap.low <= 0:
            return default, (
                f"it is the default, and the best, {best}, is better by {percent(gap.difference)} points "
                f"only, not significantly ({percent(gap.low)} to {percent(gap.high)})"
            )
    if labels:
        covered = percent(settings[best].coverage())
        return best, f"{ROUND} random tries solve most questions there ({covered} %){tie}"
    return best, (
        f"it gives the most distinct answers ({percent(fmean(settings[best].distinct))} % of the tries) of "
        f"the values with at most {percent(limit)} % unparsed answers, one point more than the default"
    )


def _tied(settings: Mapping[str, Tries], best: str, other: str) -> bool:
    return paired_bootstrap(settings[best].scores(), settings[other].scores()).low <= 0


def _interval(scores: Sequence[float]) -> str:
    """The interval of the mean by which settings are compared, in percent."""
    interval = paired_bootstrap(scores, [0.0] * len(scores))
    return f"{percent(interval.low)} to {percent(interval.high)}"


def report(
    configured: Tries, size: int, groups: Mapping[str, Mapping[str, Tries]], folder: Path, option: str
) -> None:
    """Print the tables and recommendations, and write them to ``folder``.

    Args:
        configured: The tries of the points with the configured setting.
        size: The portfolio's size.
        groups: The tries of each value of each option, the default first; a temperature has no default.
        folder: Where the report is written.
        option: The option that uses the portfolio.
    """
    parts = [f"# Calibration on {len(configured.answers)} questions"]
    if len(configured.answers) < FEW:
        count = len(configured.answers)
        warning = f"Only {count} questions: differences may be chance; raise limit to {FEW} or more."
        print(f"{warning}\n")
        parts.append(warning)
    for name, settings in groups.items():
        where = f" {METHODS[name]}" if name in METHODS else ""
        if where and configured.correct is None:
            advice = f"Without labels no {name} is recommended: more of it also gives more wrong answers."
        else:
            value, reason = recommend(settings, None if name == TEMPERATURE else next(iter(settings)))
            advice = f"Recommended: {name}={value}{where}, because {reason}."
        columns = (name, "distinct answers (%)", "unparsed (%)", f"coverage@{ROUND} (%)", "95 % interval")
        rows = [
            (
                value,
                percent(fmean(tries.distinct)),
                percent(tries.unparsed),
                percent(tries.coverage()),
                _interval(tries.scores()),
            )
            for value, tries in settings.items()
        ]
        table = Table(columns, rows)
        print(f"{table.text()}\n{advice}\n")
        parts += [f"## {name}{where}", table.markdown(), advice]
    chosen = "without labels, by distinct answers" if configured.correct is None else "by labels"
    summary = f"Portfolio: {size} of {len(configured.answers[0])} points, chosen {chosen}."
    if configured.correct is not None and len(configured.answers) > 1:
        first = min(size, ROUND)
        summary += (
            f" Chosen on three quarters of the questions, its first {first} points solve "
            f"{percent(held_out(configured.useful, first))} % of the rest; as many random points "
            f"{percent(configured.coverage(first))} %."
        )
    summary += f"\nUse it on other questions with {option}"
    print(summary)
    write_text(folder / REPORT, "\n\n".join([*parts, "## Portfolio", summary]) + "\n")
