"""Calibration: what one setting of the search gives, a recommended setting, and a portfolio of points.

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
from soft_reasoning.rewards.judged import same_answers
from soft_reasoning.runs.files import write_text
from soft_reasoning.types import Problem

REPORT = "calibration.md"
TEMPERATURE = "temperature"
"""Of sampling without a soft token, which the configured setting does not do."""
FOLDS = 4
"""Parts of the questions: a portfolio is chosen on the others and measured on each."""
SLACK = 0.01
"""How much higher than the default's a recommended setting's share of unparsed answers may be."""
ROUND = 5
"""Tries that coverage is estimated for, the candidates of a round."""

Answers = Sequence[Sequence[str | None]]
"""Q rows of M answers."""


@dataclass(frozen=True)
class Tried:
    """The answers of one setting to Q questions with M tries each.

    Attributes:
        answers: Q rows of M answers, equal if they mean the same; None where none could be read.
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
    ) -> Tried:
        """Return what setting ``number`` gave: the candidates of that round in each problem's row."""
        answers: list[list[str | None]] = []
        correct: list[list[bool]] = []
        for problem, candidates in rows:
            read = [c["answer"] for c in candidates if c["round"] == number]
            correct.append([bool(grader.correct(answer, problem)) for answer in read])
            for group in same_answers(read, grader, problem.answer_type):
                for i in group:
                    read[i] = read[group[0]]
            answers.append(read)
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
    def wanted(self) -> Answers:
        """The answers worth finding: all, or with labels the right ones; None in place of the others."""
        if self.correct is None:
            return self.answers
        pairs = (zip(*rows, strict=True) for rows in zip(self.answers, self.correct, strict=True))
        return [[answer if right else None for answer, right in row] for row in pairs]

    def worth(self, k: int = ROUND) -> list[float]:
        """Return what settings are compared by, for each question.

        It is the chance that k tries, drawn at random, solve it or, without labels, ``distinct``.
        """
        if self.correct is None:
            return self.distinct
        return [float(hypergeom.sf(0, len(row), sum(row), min(k, len(row)))) for row in self.correct]

    def coverage(self, k: int = ROUND) -> float | None:
        """Return the share of questions that k tries, drawn at random, solve; None without labels."""
        return None if self.correct is None else fmean(self.worth(k))

    def first(self, count: int) -> Tried:
        """Return the first ``count`` tries of each question."""
        correct = None if self.correct is None else [row[:count] for row in self.correct]
        return Tried([row[:count] for row in self.answers], correct)


def choose(wanted: Answers, count: int) -> list[int]:
    """Choose tries one after another, each the one that finds most ``wanted`` answers; the first of several.

    Answers that an earlier choice found do not count again.
    """
    columns = zip(*wanted, strict=True)
    finds = [{(q, answer) for q, answer in enumerate(column) if answer is not None} for column in columns]
    found: set[tuple[int, str | None]] = set()
    chosen: list[int] = []
    for _ in range(count):
        left = [j for j in range(len(finds)) if j not in chosen]
        chosen.append(max(left, key=lambda j: len(finds[j] - found)))
        found |= finds[chosen[-1]]
    return chosen


def held_out(wanted: Answers, count: int) -> float:
    """Return the share of questions that a portfolio of ``count`` points solves which was chosen on others.

    It is chosen on three quarters of the questions and measured on the rest, four times.
    """
    solved = 0
    for fold in range(FOLDS):
        chosen = choose([row for q, row in enumerate(wanted) if q % FOLDS != fold], count)
        solved += sum(any(row[j] is not None for j in chosen) for row in wanted[fold::FOLDS])
    return solved / len(wanted)


def recommend(settings: Mapping[str, Tried], default: str | None) -> tuple[str, str]:
    """Return the best of several settings, and the reason in words.

    With labels it is the one of the highest coverage. Without, it is the one with the most distinct answers
    among those with hardly more unparsed answers than the ``default``. The default is kept where the best
    one is better by no more than chance.
    """
    limit = 1.0 if default is None else settings[default].unparsed + SLACK
    labels = all(tried.correct is not None for tried in settings.values())
    allowed = [value for value, tried in settings.items() if labels or tried.unparsed <= limit]
    best = max(allowed, key=lambda value: fmean(settings[value].worth()))
    if default is not None and default != best:
        gap = paired_bootstrap(settings[best].worth(), settings[default].worth())
        if gap.low <= 0:
            return default, (
                f"it is the default, and the best, {best}, is better by {percent(gap.difference)} points "
                f"only, within chance ({percent(gap.low)} to {percent(gap.high)})"
            )
    if labels:
        covered = percent(settings[best].coverage())
        return best, f"{ROUND} random tries solve most questions there ({covered} %)"
    return best, (
        f"it gives the most distinct answers ({percent(fmean(settings[best].distinct))} % of the tries) of "
        f"the values with at most {percent(limit)} % unparsed answers, one point more than the default"
    )


def report(
    own: Tried, kept: int, groups: Mapping[str, Mapping[str, Tried]], folder: Path, option: str
) -> None:
    """Print the tables and recommendations, and write them to ``folder``.

    Args:
        own: What the points gave with the configured setting.
        kept: The portfolio's size.
        groups: What each value of each option gave, the default first; a temperature has no default.
        folder: Where the report is written.
        option: The option that uses the portfolio.
    """
    parts = [f"# Calibration on {len(own.answers)} questions"]
    for name, settings in groups.items():
        if name == TEMPERATURE and own.correct is None:
            advice = f"Without labels no {name} is recommended: more of it also gives more wrong answers."
        else:
            value, reason = recommend(settings, None if name == TEMPERATURE else next(iter(settings)))
            advice = f"Recommended: {name}={value}, because {reason}."
        columns = (name, "distinct answers (%)", "unparsed (%)", f"coverage@{ROUND} (%)")
        rows = [
            (value, percent(fmean(tried.distinct)), percent(tried.unparsed), percent(tried.coverage()))
            for value, tried in settings.items()
        ]
        shown = Table(columns, rows)
        print(f"{shown.text()}\n{advice}\n")
        parts += [f"## {name}", shown.markdown(), advice]
    chosen = "without labels, by distinct answers" if own.correct is None else "by labels"
    words = f"Portfolio: {kept} of {len(own.answers[0])} points, chosen {chosen}."
    if own.correct is not None:
        first = min(kept, ROUND)
        words += (
            f" Chosen on three quarters of the questions, its first {first} points solve "
            f"{percent(held_out(own.wanted, first))} % of the rest; as many random points "
            f"{percent(own.coverage(first))} %."
        )
    words += f"\nUse it on other questions with {option}"
    print(words)
    write_text(folder / REPORT, "\n\n".join([*parts, "## Portfolio", words]) + "\n")
