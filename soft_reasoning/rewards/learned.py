"""A learned final rule: the probability that an answer is right, from what a run records about it.

Logistic regression over the answers of labelled runs, which ``soft-reasoning calibrate`` fits
(``calibration.runs=[FOLDER]``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from soft_reasoning.rewards.estimates import Beta, Estimate, Judged, fit_prior
from soft_reasoning.types import Problem, UserError

FEATURES = (
    "votes", "verdict", "best_verdict", "coherence", "best_coherence", "own_answers", "first_round",
    "density",
)  # fmt: skip
FOLDS = 5


def features(judged: Judged) -> list[list[float]]:
    """Return a row of ``FEATURES`` for each answer, comparable across problems.

    These are the log-odds of its share of the candidates, and of its pooled verdicts; its best verdict; mean
    and best coherence, less the mean of all candidates; its share of the verifier's own answers; its first
    round as a share of the rounds; and the mean distance of its points from all others as a share of the
    mean distance of all (1 where candidates have no points).
    """
    candidates, kind = judged.candidates, judged.answer_type
    own = [
        (a, w) for v in judged.verdicts for a, w in zip(v.answers, v.weights, strict=True) if a is not None
    ]
    coherent = [c.coherence or 0.0 for c in candidates]
    last = max((c.round for c in candidates), default=0) + 1
    apart = _distances([c.u for c in candidates])
    rows: list[list[float]] = []
    for one in judged.estimates():
        count, total = len(one.members), len(candidates)
        mine = [coherent[i] for i in one.members]
        agreed = sum(w for a, w in own if judged.grader.equal(a, one.answer, kind))
        rows.append([
            math.log((count + 0.5) / (total - count + 0.5)),
            math.log(one.mean / (1 - one.mean)),
            max(candidates[i].verified or 0.0 for i in one.members),
            fmean(mine) - fmean(coherent),
            max(mine) - fmean(coherent),
            agreed / (sum(w for _, w in own) or 1.0),
            min(candidates[i].round for i in one.members) / last,
            fmean(apart[i] for i in one.members),
        ])  # fmt: skip
    return rows


def _distances(points: Sequence[tuple[float, ...] | None]) -> list[float]:
    known = [point for point in points if point is not None]
    if len(known) < len(points) or len(known) < 2:
        return [1.0] * len(points)
    mean = [fmean(math.dist(a, b) for b in known) for a in known]
    return [one / (fmean(mean) or 1.0) for one in mean]


@dataclass(frozen=True)
class LearnedRule:
    """Logistic regression on standardised ``FEATURES``.

    Attributes:
        means: Of each feature.
        scales: Standard deviation of each feature.
        weights: Weight of each standardised feature.
        bias: The log-odds where all features are average.
        verdicts: Prior of what verdicts are worth (``rewards.estimates``).
        made_for: What it belongs to: plain values by name (model, prompt).
        questions: Id and mark (``search.prior.question_mark``) of every problem that it was fitted to.
    """

    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    verdicts: Beta
    made_for: Mapping[str, Any]
    questions: Mapping[str, str]

    @classmethod
    def load(cls, path: str | None, option: str = "final.prior") -> LearnedRule:
        """Read the rule in a file of ``soft-reasoning calibrate``, which ``option`` names.

        Raises:
            UserError: If there is no such file, or it holds none.
        """
        wanted = f"{option}: expected a file that soft-reasoning calibrate calibration.runs=[FOLDER] wrote"
        if path is None:
            raise UserError(f"{wanted}, got none; set search.prior=FILE or {option}=FILE")
        try:
            stored = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))["final"]
            parts = {
                key: tuple(map(float, stored[key])) for key in ("means", "scales", "weights", "verdicts")
            }
            rule = cls(**{**stored, **parts})
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = getattr(error, "strerror", None) or "no final rule in it"
            raise UserError(f"{wanted}, got {path} ({reason})") from error
        if {len(rule.means), len(rule.scales), len(rule.weights)} != {len(FEATURES)}:
            raise UserError(f"{wanted}, got {path} with other features; calibrate again")
        return rule

    def probabilities(self, judged: Judged) -> list[float]:
        """Return the probability that each distinct answer is right, in the order of ``Judged.estimates``."""
        return [self.probability(row) for row in features(judged)]

    def probability(self, row: Sequence[float]) -> float:
        """Return the probability for one row of ``FEATURES``."""
        parts = zip(row, self.means, self.scales, self.weights, strict=True)
        return 1 / (1 + math.exp(-self.bias - sum(w * (x - m) / s for x, m, s, w in parts)))


Row = tuple[Problem, Judged]


def fit(
    rows: Sequence[Row], made_for: Mapping[str, Any], questions: Mapping[str, str] | None = None
) -> tuple[LearnedRule, float]:
    """Fit a rule to labelled problems, and return it with its accuracy on held-out problems.

    Each fifth of the problems is answered by a rule that is fitted to the others.

    Raises:
        UserError: If right and wrong answers are not both there in every part.
    """
    tables, every = [], list[Estimate]()
    for problem, judged in rows:
        found = judged.estimates()
        every += found
        tables.append((features(judged), [bool(judged.grader.correct(one.answer, problem)) for one in found]))
    known = {"verdicts": fit_prior(every), "made_for": made_for, "questions": questions or {}}
    solved = 0
    for fold in range(FOLDS):
        rule = _fitted([table for i, table in enumerate(tables) if i % FOLDS != fold], known)
        for table, right in tables[fold::FOLDS]:
            worths = [rule.probability(row) for row in table]
            solved += bool(worths) and right[max(range(len(worths)), key=worths.__getitem__)]
    return _fitted(tables, known), solved / max(1, len(tables))


def _fitted(tables: Sequence[tuple[list[list[float]], list[bool]]], known: Mapping[str, Any]) -> LearnedRule:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    X = [row for table, _ in tables for row in table]
    y = [one for _, right in tables for one in right]
    if len(set(y)) < 2:
        raise UserError(
            "calibration.runs: expected runs with right and wrong answers, got one kind only; use more "
            "problems"
        )
    scaler = StandardScaler().fit(X)
    model = LogisticRegression().fit(scaler.transform(X), y)
    values: Any = (scaler.mean_, scaler.scale_, model.coef_[0])
    means, scales, weights = (tuple(map(float, column)) for column in values)
    return LearnedRule(means, scales, weights, float(model.intercept_[0]), **known)
