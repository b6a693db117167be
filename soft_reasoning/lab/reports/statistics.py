"""Statistics of comparisons, exact where that is cheap and seeded otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest, norm


def wilson(share: float, n: float) -> tuple[float, float]:
    """Return the 95 % interval of Wilson's score for a ``share`` of ``n`` problems.

    Unlike the standard error it is not zero at 0 and 1. ``share`` may be a mean over several runs on the
    ``n`` problems, for which ``scipy.stats.binomtest`` has no whole count of successes. The interval is then
    rather too wide, since a problem's mean varies less than a single answer.
    """
    if not n:
        return math.nan, math.nan
    z2 = norm.ppf(0.975) ** 2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = np.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    return float(np.maximum(middle - half, 0.0)), float(np.minimum(middle + half, 1.0))


class Interval(NamedTuple):
    """A difference of means with its interval."""

    difference: float
    low: float
    high: float


def paired_bootstrap(
    a: Sequence[float], b: Sequence[float], *, seed: int = 0, resamples: int = 10_000
) -> Interval:
    """Return the 95 % percentile interval of mean(a) - mean(b), paired (n,), over resampled problems.

    A resample of n pairs depends only on how often each distinct difference occurs, so it is a multinomial
    draw.
    """
    difference = np.subtract(a, b, dtype=float)
    values, counts = np.unique(difference, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(difference.size, counts / difference.size, size=resamples)
    low, high = np.quantile(drawn @ values / difference.size, [0.025, 0.975])
    return Interval(float(difference.mean()), float(low), float(high))


def paired_permutation(a: Sequence[float], b: Sequence[float], *, seed: int = 0) -> float:
    """Return the two-sided p value that paired ``a`` and ``b`` (n,) have the same mean, by random sign flips.

    It is exact (McNemar's test) if all differences have the same size, as for single runs; 1 if there are
    none. Otherwise it uses 100,000 seeded draws and counts the observed value as well, so it is never zero.
    """
    difference = np.subtract(a, b, dtype=float)
    sizes, counts = np.unique(np.abs(difference[difference != 0]), return_counts=True)
    if sizes.size == 0:
        return 1.0
    if sizes.size == 1:
        return float(binomtest(int((difference > 0).sum()), int(counts[0])).pvalue)
    heads = np.random.default_rng(seed).binomial(counts, 0.5, size=(100_000, sizes.size))
    drawn = np.abs((2 * heads - counts) @ sizes)
    observed = abs(float(difference.sum()))
    return float((1 + np.count_nonzero(drawn >= observed - 1e-9)) / 100_001)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm-corrected ``p_values`` in the same order: family-wise error, no independence assumed."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return corrected.tolist()
