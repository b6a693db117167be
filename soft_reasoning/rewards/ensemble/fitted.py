"""Weights of an ensemble's judges, fitted to labelled questions by ``soft-reasoning calibrate``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy
from scipy.optimize import minimize  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]
from scipy.special import expit  # pyright: ignore[reportMissingTypeStubs]

from soft_reasoning.search.prior import check_made_for, check_unseen
from soft_reasoning.types import UserError

OPTION = "verifier.fitted"
RIDGE = 1.0
"""Strength of the penalty on squared weights of standardised parts, in candidates."""


@dataclass(frozen=True)
class FittedWeights:
    """A logistic regression of "this candidate is right" on the scores of the parts.

    Attributes:
        weights: For each part, the log-odds per unit of its value; at least 0.
        means: For each part, the value that replaces a missing score.
        bias: The log-odds of a candidate at the means.
        made_for: The setting that the weights belong to: plain values by name (model, prompt, ...).
        questions: Id and fingerprint of every question that they were fitted to.
    """

    weights: Mapping[str, float]
    means: Mapping[str, float]
    bias: float
    made_for: Mapping[str, Any]
    questions: Mapping[str, str]

    def probability(self, values: Mapping[str, float | None]) -> float:
        """Return the probability that a candidate with these ``values`` of the parts is right."""
        total = self.bias
        for name, weight in self.weights.items():
            value = values.get(name)
            total += 0.0 if value is None else weight * (value - self.means[name])
        return 1 / (1 + math.exp(-total)) if total > -700 else 0.0

    @classmethod
    def load(cls, path: str | PathLike[str]) -> FittedWeights:
        """Read a file of :meth:`save`.

        Raises:
            UserError: If the file is missing or was not written by ``calibrate``.
        """
        expected = f"{OPTION}: expected a file that soft-reasoning calibrate wrote"
        try:
            fitted = cls(**json.loads(Path(path).expanduser().read_text(encoding="utf-8")))
            values = [fitted.bias, *(v for part in (fitted.weights, fitted.means) for v in part.values())]
            if not all(map(math.isfinite, values)) or fitted.weights.keys() != fitted.means.keys():
                raise ValueError
        except OSError as error:
            raise UserError(f"{expected}, got {path} ({error.strerror})") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{expected}, got {path}, another file; calibrate again") from error
        return fitted

    def save(self, path: str | PathLike[str]) -> None:
        """Write the weights as JSON."""
        Path(path).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    def check_made_for(self, run: Mapping[str, Any]) -> None:
        """Reject a ``run`` whose values differ from ``made_for``."""
        check_made_for(OPTION, "weights", self.made_for, run)

    def check_unseen(self, questions: Sequence[str]) -> None:
        """Reject ``questions`` that include a question of the calibration."""
        check_unseen(OPTION, self.questions, questions)


def fit(
    values: Sequence[Mapping[str, float | None]],
    right: Sequence[bool],
    questions: Sequence[str],
    parts: Sequence[str],
) -> tuple[dict[str, float], dict[str, float], float]:
    """Return the weights, the means and the bias of a logistic regression with weights of at least 0.

    Each question counts once, however many candidates it has. A useless judge gets a weight near 0. One that
    is wrong more often than right gets 0, since that is mostly chance.

    Args:
        values: The score of each candidate by each part; None where a part gives none.
        right: Whether each candidate is right.
        questions: The question of each candidate.
        parts: The parts.

    Raises:
        UserError: Unless there are right and wrong candidates.
    """
    labels = numpy.array(right, dtype=float)
    if not 0 < labels.sum() < len(labels):
        raise UserError(
            "calibrate: expected right and wrong candidates to fit weights to, got only one kind; use more "
            "questions (limit=)"
        )
    counts = {name: questions.count(name) for name in set(questions)}
    share = numpy.array([1 / counts[name] for name in questions])
    columns, means, scales = [], dict[str, float](), dict[str, float]()
    for name in parts:
        known = numpy.array([value[name] for value in values if value.get(name) is not None], dtype=float)
        means[name] = float(known.mean()) if len(known) else 0.0
        scales[name] = max(float(known.std()), 1e-9) if len(known) else 1.0
        column = [0.0 if (v := value.get(name)) is None else v - means[name] for value in values]
        columns.append(numpy.array(column) / scales[name])
    table = numpy.stack(columns, axis=1)

    def loss(point: numpy.ndarray) -> tuple[float, numpy.ndarray]:
        logits = table @ point[1:] + point[0]
        signed = numpy.where(labels == 1, logits, -logits)
        slope = share * (expit(logits) - labels)
        value = float(share @ numpy.logaddexp(0, -signed)) + 0.5 * RIDGE * float(point[1:] @ point[1:])
        return value, numpy.concatenate([[slope.sum()], table.T @ slope + RIDGE * point[1:]])

    begin = numpy.zeros(1 + len(parts))
    bounds = [(None, None), *[(0, None)] * len(parts)]
    point = minimize(loss, begin, jac=True, method="L-BFGS-B", bounds=bounds).x
    weights = {name: float(w) / scales[name] for name, w in zip(parts, point[1:], strict=True)}
    return weights, means, float(point[0])
