"""Statistics of comparisons, exact where that is cheap and seeded otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest
from scipy.stats import t as student


def half_width(std: float, runs: int, stderr: float | None) -> float | None:
    """Half of a mean's 95 % interval: Student's t over several runs, else normal from the standard error."""
    if runs > 1:
        return float(student.ppf(0.975, runs - 1) * std / np.sqrt(runs))
    return None if stderr is None else 1.96 * stderr


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
    difference = _paired(a, b)
    values, counts = np.unique(difference, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(difference.size, counts / difference.size, size=resamples)
    low, high = np.quantile(drawn @ values / difference.size, [0.025, 0.975])
    return Interval(float(difference.mean()), float(low), float(high))


def paired_permutation(a: Sequence[float], b: Sequence[float], *, seed: int = 0) -> float:
    """Return the two-sided p value that paired ``a`` and ``b`` (n,) have the same mean, by random sign flips.

    It is exact (McNemar's test) if all differences have the same size, as for single runs; 1 if there are
    none. Otherwise it uses 100,000 seeded draws and counts the observed value as well, so it is never zero.
    """
    difference = _paired(a, b)
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


def _paired(a: Sequence[float], b: Sequence[float]) -> np.ndarray:
    if len(a) != len(b) or len(a) == 0:
        raise ValueError(f"expected two paired, non-empty sequences, got lengths {len(a)} and {len(b)}")
    return np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
