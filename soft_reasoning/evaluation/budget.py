"""How many samples are as much as another method spends, from what finished runs spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soft_reasoning.types import UserError

BUDGETS = ("own", "equal")
"""What each method of a comparison may spend: what its configuration says, or the reference's tokens."""


def equal_samples(tried: Mapping[str, Any], samples: int, reference: Mapping[str, Any]) -> int:
    """The number of samples that generates as many tokens a problem as ``reference``, at least 1.

    ``tried`` and ``reference`` are metrics as in ``results.json``, the first of a run with ``samples``. A
    role with a sequence or more for each sample writes in proportion to their number; any other (a verifier
    that reads all of them at once) writes as much for any number.

    Raises UserError when the samples held no tokens.
    """
    roles = [counts for role, counts in tried["tokens"].items() if role != "total"]
    growing = [counts for counts in roles if counts["sequences"] >= samples * tried["problems"]]
    each = sum(counts["generated"] for counts in growing) / tried["problems"] / samples
    if each == 0:
        raise UserError("budget=equal: expected samples that hold tokens, got empty ones; use budget=own")
    spent = tried["tokens"]["total"]["generated"] / tried["problems"]
    wanted = reference["tokens"]["total"]["generated"] / reference["problems"]
    return max(1, round(samples + (wanted - spent) / each))
