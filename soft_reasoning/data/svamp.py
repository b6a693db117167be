"""SVAMP: ``Body`` and ``Question`` (joined by exactly one full stop), ``Equation``, ``Answer``, ``ID``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soft_reasoning.data import fields
from soft_reasoning.data.exemplars import Exemplar
from soft_reasoning.types import Problem


def problem(row: Mapping[str, Any], index: int) -> Problem:
    """Convert a row."""
    identity = row.get("ID") or f"svamp-{index}"
    return Problem(str(identity), question(row), fields.number(row, "Answer"), "number", row)


def exemplar(row: Mapping[str, Any]) -> Exemplar:
    """Convert a training row; the equation is the reasoning."""
    answer = fields.number(row, "Answer")
    equation = fields.text(row, "Equation").replace(".0", "")
    return Exemplar(question(row), f"{equation} = {answer}.", answer)


def question(row: Mapping[str, Any]) -> str:
    """Join body and question."""
    return f"{fields.sentence(fields.text(row, 'Body'))} {fields.text(row, 'Question')}"
