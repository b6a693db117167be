"""GSM8K: ``question``, ``answer`` (a worked solution, then ``#### `` and the number)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from soft_reasoning.data import fields
from soft_reasoning.data.exemplars import Exemplar
from soft_reasoning.types import Problem, UserError


def problem(row: Mapping[str, Any], index: int) -> Problem:
    """Convert a row."""
    return Problem(f"gsm8k-{index}", fields.text(row, "question"), solution(row)[1], "number", row)


def exemplar(row: Mapping[str, Any]) -> Exemplar:
    """Convert a training row; the worked solution loses its calculator marks (``<<3*4=12>>``)."""
    thought, answer = solution(row)
    return Exemplar(fields.text(row, "question"), re.sub(r"<<[^<>]*>>", "", thought), answer)


def solution(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text before the last ``####`` and the number after it."""
    before, mark, gold = fields.text(row, "answer").rpartition("####")
    if not mark:
        raise UserError("expected '#### <number>' at the end of field 'answer', got none")
    return before.strip(), fields.canonical_number(gold.strip(), "answer")
