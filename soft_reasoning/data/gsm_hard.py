"""GSM-Hard: ``input``, ``code``, ``target``.

The targets are what the code computes from the enlarged numbers. Some are negative, fractional or above
10^12. There is no training split.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soft_reasoning.data import fields
from soft_reasoning.types import Problem


def problem(row: Mapping[str, Any], index: int) -> Problem:
    """Convert a row."""
    gold = fields.number(row, "target")
    return Problem(f"gsm_hard-{index}", fields.text(row, "input"), gold, "number", row)
