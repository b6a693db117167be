"""AIME: competition problems whose answers are whole numbers from 0 to 999 (leading zeros allowed)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soft_reasoning.data import fields
from soft_reasoning.types import Problem, UserError


def problem(row: Mapping[str, Any], index: int, *, year: int) -> Problem:
    """Mirrors of the data set differ in their field names; ``year`` heads the ids."""
    question = fields.text(row, "problem", "Problem", "question")
    gold = fields.number(row, "answer", "Answer")
    if not gold.isdecimal() or int(gold) > 999:
        raise UserError(f"expected a whole number from 0 to 999 in field 'answer', got {gold}")
    identity = row["id"] if row.get("id") is not None else row.get("ID", index)
    return Problem(f"aime_{year}-{identity}", question, gold, "number", row)
