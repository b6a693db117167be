"""Knowledge from other questions: a portfolio of first points."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.types import UserError


def question_fingerprint(question: str) -> str:
    """Return sixteen hexadecimal digits that identify a question's text."""
    return hashlib.sha256(question.strip().encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Prior:
    """Points chosen on calibration problems by ``soft-reasoning calibrate``.

    Attributes:
        portfolio: (m, d) float64; each point solves most of the problems that earlier points do not solve.
        made_for: The setting that the points belong to: plain values by name (model, prompt, ...).
        questions: Id and :func:`question_fingerprint` of every calibration problem.
    """

    portfolio: tuple[tuple[float, ...], ...]
    made_for: Mapping[str, Any]
    questions: Mapping[str, str]

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Prior:
        """Read a file of :meth:`save`.

        Raises:
            UserError: If the file is missing or was not written by ``calibrate``.
        """
        expected = "search.prior: expected a file that soft-reasoning calibrate wrote"
        try:
            content: dict[str, Any] = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
            content["portfolio"] = tuple(tuple(map(float, point)) for point in content["portfolio"])
            return cls(**content)
        except OSError as error:
            raise UserError(f"{expected}, got {path} ({error.strerror})") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{expected}, got {path}, another file; calibrate again") from error

    def save(self, path: str | PathLike[str]) -> None:
        """Write the prior as JSON."""
        Path(path).write_text(json.dumps(self.__dict__, indent=1) + "\n", encoding="utf-8")

    def check_made_for(self, run: Mapping[str, Any]) -> None:
        """Reject a ``run`` whose values differ from ``made_for``.

        Raises:
            UserError: For a difference; the message names the first.
        """
        check_made_for("search.prior", "a prior", self.made_for, run)

    def check_unseen(self, questions: Sequence[str]) -> None:
        """Reject ``questions`` that include a question of the calibration.

        Raises:
            UserError: If there is such a question.
        """
        check_unseen("search.prior", self.questions, questions)


def check_made_for(option: str, what: str, made_for: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    """Reject a ``run`` whose values differ from those in ``made_for``, for which ``option`` was made.

    Raises:
        UserError: For a difference; the message names the first.
    """
    for key in sorted(made_for.keys() | run.keys()):
        value, run_value = made_for.get(key), run.get(key)
        if value != run_value:
            raise UserError(
                f"{option}: expected {what} for the run's {key}, {run_value}, got {what} for {value}; "
                "calibrate again, or change it back"
            )


def check_unseen(option: str, known: Mapping[str, str], questions: Sequence[str]) -> None:
    """Reject ``questions`` that ``option`` was made on: those whose fingerprints are in ``known``.

    Raises:
        UserError: If there is such a question.
    """
    names = {fingerprint: name for name, fingerprint in known.items()}
    seen = [names[mark] for mark in map(question_fingerprint, questions) if mark in names]
    if seen:
        raise UserError(
            f"{option}: expected problems other than those it was made on, got {len(seen)} of those, such as "
            f"{seen[0]}; choose others with dataset.offset or dataset.split"
        )


def load_prior(prior: Prior | str | PathLike[str] | None) -> Prior | None:
    """Return ``prior`` itself, or the prior in the file of that name; None for None."""
    return prior if prior is None or isinstance(prior, Prior) else Prior.load(prior)


def first_points(prior: Prior | None, start: int, k: int, dim: int) -> Tensor:
    """Return the portfolio's points (at most k, dim) from index ``start`` on; none without a prior.

    Raises:
        UserError: If the prior's points have another dimension.
    """
    if prior is None:
        return torch.empty(0, dim, dtype=torch.float64)
    points = torch.tensor(prior.portfolio, dtype=torch.float64)
    if points.shape[-1] != dim:
        raise UserError(
            f"search.prior: expected points of {dim} dimensions, got {points.shape[-1]}; calibrate again"
        )
    return points[start : start + k]
