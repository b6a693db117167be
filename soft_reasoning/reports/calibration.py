"""Calibration: what one setting of the search gives, a recommended setting, and a portfolio of points.

Without labels every distinct answer to a question counts as right. Agreement with the most frequent answer
would choose points that all give the same answers (experiments/results/search.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from scipy.stats import hypergeom

from soft_reasoning.reports.plots import BLUE, GREY, ORANGE, panels, percent_axis
from soft_reasoning.reports.statistics import paired_bootstrap
from soft_reasoning.reports.tables import Table, number, percent

REFERENCES = ("auto", "labels", "answers")
FOLDS = 4
"""Parts of the questions: a portfolio is chosen on the others and measured on each."""
SLACK = 0.01
"""How much higher than at the smallest setting a recommended one's share of unparsed answers may be."""
ROUND = 5
"""Tries that coverage is estimated for, the candidates of a round."""

Answers = Sequence[str | None]


@dataclass(frozen=True)
class Tried:
    """The answers of one setting to Q questions with M tries each.

    Attributes:
        answers: Q rows of M answers, equal if they mean the same; None where none could be read.
        coherence: Q rows of M values.
        correct: Q rows of M values, or None without labels for all questions.
    """

    answers: Sequence[Answers]
    coherence: Sequence[Sequence[float]]
    correct: Sequence[Sequence[bool]] | None

    @property
    def tries(self) -> int:
        return len(self.answers[0])

    @property
    def distinct(self) -> float:
        """Mean number of distinct answers to a question, over M."""
        return fmean(self.worth(False))

    @property
    def unparsed(self) -> float:
        """Share of tries without an answer."""
        return fmean(answer is None for row in self.answers for answer in row)

    @property
    def mean_coherence(self) -> float:
        return fmean(value for row in self.coherence for value in row)

    def coverage(self, k: int = ROUND) -> float | None:
        """Share of questions that k tries, drawn at random, solve; None without labels."""
        return None if self.correct is None else fmean(self.worth(True, k))

    def worth(self, labels: bool, k: int = ROUND) -> list[float]:
        """What settings are compared by, for each question.

        It is the chance that k tries solve it or, without ``labels``, its distinct answers over M.
        """
        if not labels or self.correct is None:
            return [len(set(row) - {None}) / len(row) for row in self.answers]
        return [float(hypergeom.sf(0, len(row), sum(row), min(k, len(row)))) for row in self.correct]

    def first(self, count: int) -> Tried:
        """Return the first ``count`` tries of each question."""
        correct = None if self.correct is None else [row[:count] for row in self.correct]
        return Tried([r[:count] for r in self.answers], [r[:count] for r in self.coherence], correct)

    def worth_of(self, labels: bool) -> list[list[float]]:
        """Return what each try is worth: 1 if it is right.

        Without ``labels`` it is the share of all tries at the question with the same answer, 0 without one.
        """
        if labels and self.correct is not None:
            return [[float(right) for right in row] for row in self.correct]
        shares = []
        for row in self.answers:
            counts = Counter(row)
            shares.append([0.0 if answer is None else counts[answer] / self.tries for answer in row])
        return shares

    def wanted(self, labels: bool) -> list[set[str]]:
        """Return each question's answers worth finding: all, or with ``labels`` the right ones."""
        if not labels:
            return [{answer for answer in row if answer is not None} for row in self.answers]
        if self.correct is None:
            raise ValueError("expected labels, got none")
        return [
            {answer for answer, right in zip(*rows, strict=True) if right and answer is not None}
            for rows in zip(self.answers, self.correct, strict=True)
        ]


def choose(tried: Tried, wanted: Sequence[set[str]], count: int) -> list[int]:
    """Choose tries one after another, each the one that finds most wanted answers; the first of several.

    Answers that an earlier choice found do not count again.
    """
    left = [set(answers) for answers in wanted]
    chosen: list[int] = []

    def found(j: int) -> int:
        return sum(row[j] in answers for row, answers in zip(tried.answers, left, strict=True))

    for _ in range(min(count, tried.tries)):
        best = max((j for j in range(tried.tries) if j not in chosen), key=found)
        chosen.append(best)
        for row, answers in zip(tried.answers, left, strict=True):
            answers.discard(row[best] or "")
    return chosen


def held_out(tried: Tried, wanted: Sequence[set[str]], count: int) -> list[float]:
    """Share of questions that the first 1, 2, ... points of a portfolio solve, on questions not used for it.

    The portfolio is chosen on three quarters of the questions and measured on the rest, four times.
    """
    if tried.correct is None:
        raise ValueError("expected labels, got none")
    solved = [0] * min(count, tried.tries)
    for fold in range(FOLDS):
        kept = [i for i in range(len(wanted)) if i % FOLDS != fold]
        part = Tried([tried.answers[i] for i in kept], [tried.coherence[i] for i in kept], None)
        chosen = choose(part, [wanted[i] for i in kept], count)
        for row in tried.correct[fold::FOLDS]:
            for k in range(len(chosen)):
                solved[k] += any(row[j] for j in chosen[: k + 1])
    return [count / len(tried.correct) for count in solved]


def recommend(settings: Mapping[Any, Tried], labels: bool, default: Any = None) -> tuple[Any, str]:
    """Return the best of several settings, and the reason in words.

    With ``labels`` it is the one of the highest coverage. Without, it is the one with the most distinct
    answers among those with hardly more unparsed answers than the first: the smallest number, or the run's
    own embedding. ``default`` is kept where the best one is better by no more than chance.
    """
    ordered = in_order(settings)
    limit = settings[ordered[0]].unparsed + SLACK
    allowed = ordered if labels else [v for v in ordered if settings[v].unparsed <= limit]
    best = max(allowed, key=lambda value: fmean(settings[value].worth(labels)))
    if default in allowed and default != best:
        gap = paired_bootstrap(settings[best].worth(labels), settings[default].worth(labels))
        if gap.low <= 0:
            return default, (
                f"it is the default, and the best, {written(best)}, is better by {percent(gap.difference)} "
                f"points only, within chance ({percent(gap.low)} to {percent(gap.high)})"
            )
    if labels:
        covered = percent(settings[best].coverage())
        return best, f"{ROUND} random tries solve most questions there ({covered} %)"
    return best, (
        f"it gives the most distinct answers ({percent(settings[best].distinct)} % of the tries) among the "
        f"values with at most {percent(limit)} % unparsed answers, one point more than at "
        f"{written(ordered[0])}"
    )


def foreseen(found: Mapping[str, Sequence[tuple[float, float]]], seen: int) -> tuple[Table, str]:
    """Return a table of how well each choice of features foresees, and which to take.

    Args:
        found: For each choice, each question's shares of pairs ranked rightly: of all, and of new texts.
        seen: How many points of a question the surrogate was told of.
    """
    rows: list[tuple[str, ...]] = []
    gains: dict[str, tuple[float, float]] = {}
    for name, shares in found.items():
        known, new = ([v for v in column if not math.isnan(v)] for column in zip(*shares, strict=True))
        gap = paired_bootstrap(known, [0.5] * len(known)) if known else None
        gains[name] = (gap.low, gap.difference) if gap else (0.0, 0.0)
        rows.append((name, percent(fmean(known)) if known else "", percent(fmean(new)) if new else ""))
    table = Table(("features", "ranked rightly (%)", "of new texts (%)"), rows)
    best = max(gains, key=lambda name: gains[name][1])
    share = percent(0.5 + gains[best][1])
    if gains[best][0] <= 0:
        return table, (
            f"After {seen} points of a question no features rank the others rightly beyond chance (50 %; the "
            f"best, {best}, {share} %): random points will do as well (method=random_embedding)."
        )
    if best == "point":
        return table, f"Recommended: features=point, the default, which ranks {share} % of the pairs rightly."
    return table, (
        f"Recommended: candidate_points=pool surrogate=features features={best}, because after {seen} points "
        f"of a question it ranks {share} % of the pairs of others rightly, where chance is 50 %."
    )


def in_order(settings: Mapping[Any, Tried]) -> list[Any]:
    """Return numbers by size, and names as they come."""
    return list(settings) if any(isinstance(value, str) for value in settings) else sorted(settings)


def written(value: float | str) -> str:
    """Write a setting's value."""
    return value if isinstance(value, str) else f"{value:g}"


def table(name: str, settings: Mapping[Any, Tried]) -> Table:
    """Return one row per setting."""
    columns = (name, "distinct answers (%)", "unparsed (%)", "coherence", f"coverage@{ROUND} (%)")
    rows = [
        (written(value), percent(tries.distinct), percent(tries.unparsed), number(tries.mean_coherence, 3),
         percent(tries.coverage()))
        for value, tries in ((value, settings[value]) for value in in_order(settings))
    ]  # fmt: skip
    return Table(columns, rows)


def draw(groups: Mapping[str, Mapping[Any, Tried]], path: Path) -> None:
    """Plot distinct answers, unparsed answers and coverage over each group's values."""
    with panels(path, columns=len(groups), width=1 + 4 * len(groups)) as axes:
        for panel, (name, settings) in zip(axes[0], groups.items(), strict=True):
            _lines(panel, settings)
            panel.set_xlabel(name)
        axes[0][0].set_ylabel("%")
        axes[0][0].figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)


def _lines(axes: Any, settings: Mapping[Any, Tried]) -> None:
    values = in_order(settings)
    line = "o" if isinstance(values[0], str) else "o-"
    lines = {
        "distinct answers": (BLUE, [settings[v].distinct for v in values]),
        "unparsed": (GREY, [settings[v].unparsed for v in values]),
        f"coverage@{ROUND}": (ORANGE, [settings[v].coverage() for v in values]),
    }
    for label, (color, shares) in lines.items():
        known = [(v, 100 * s) for v, s in zip(values, shares, strict=True) if s is not None]
        if known:
            axes.plot(*zip(*known, strict=True), line, color=color, label=label)
    percent_axis(axes, "y")
