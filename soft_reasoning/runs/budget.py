"""Numbers of samples that cost as much as another method, computed from finished runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soft_reasoning.types import UserError


def equal_samples(tried: Mapping[str, Any], samples: int, reference: Mapping[str, Any]) -> int:
    """Return the number of samples (at least 1) that generates as many tokens per problem as ``reference``.

    Args:
        tried: Metrics, as in ``results.json``, of a run with ``samples`` samples. Tokens, including a
            verifier's, are assumed to grow in proportion to samples.
        samples: The samples of that run.
        reference: Metrics of the reference.

    Raises:
        UserError: If the samples had no tokens.
    """
    spent, wanted = (
        metrics["tokens"]["total"]["generated"] / metrics["problems"] for metrics in (tried, reference)
    )
    if spent == 0:
        raise UserError("budget=equal: expected samples that hold tokens, got empty ones; use budget=own")
    return max(1, round(samples * wanted / spent))
