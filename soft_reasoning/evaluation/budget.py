"""How many samples are as much as another method spends, from what finished runs spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soft_reasoning.types import UserError

BUDGETS = ("own", "equal")
"""What each method of a comparison may spend: what its configuration says, or the reference's tokens."""


def equal_samples(tried: Mapping[str, Any], samples: int, reference: Mapping[str, Any]) -> int:
    """The number of samples that generates as many tokens a problem as ``reference``, at least 1.

    ``tried`` and ``reference`` are metrics as in ``results.json``, the first of a run with ``samples``, whose
    tokens, a verifier's included, are taken to grow in proportion to their number.

    Raises UserError when the samples held no tokens.
    """
    spent, wanted = (
        metrics["tokens"]["total"]["generated"] / metrics["problems"] for metrics in (tried, reference)
    )
    if spent == 0:
        raise UserError("budget=equal: expected samples that hold tokens, got empty ones; use budget=own")
    return max(1, round(samples * wanted / spent))
