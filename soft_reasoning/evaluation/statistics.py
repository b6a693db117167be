"""Statistics of comparisons: exact where that is cheap, seeded where it is not. Knows no run and no file."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def mean_stderr(values: Sequence[float]) -> tuple[float, float]:
    """(mean, its standard error) of ``values`` (n,): sample standard deviation over sqrt(n).

    For 0/1 values that is sqrt(p (1 - p) / (n - 1)), as lm-evaluation-harness reports it. NaN where
    undefined: no value at all, or the error of a single one.
    """
    n = len(values)
    if n == 0:
        return math.nan, math.nan
    mean = math.fsum(values) / n
    if n == 1:
        return mean, math.nan
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """(mean, sample standard deviation) over seeds; the latter is NaN for fewer than two."""
    if not values:
        return math.nan, math.nan
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan


def pass_at(n: int, correct: int, m: int) -> float:
    """Chance that ``m`` of ``n`` i.i.d. samples, ``correct`` of them right, hold a right one.

    1 - C(n - c, m) / C(n, m), unbiased (Chen et al. 2021). Raises ValueError unless 1 <= m <= n.
    """
    if not 1 <= m <= n or not 0 <= correct <= n:
        raise ValueError(f"expected 1 <= m <= n and 0 <= correct <= n, got m={m}, n={n}, correct={correct}")
    return 1.0 - math.comb(n - correct, m) / math.comb(n, m)


@dataclass(frozen=True)
class Interval:
    """A difference of means with the interval it lies in."""

    difference: float
    low: float
    high: float


def paired_bootstrap(
    a: Sequence[float], b: Sequence[float], *, seed: int = 0, resamples: int = 10_000, level: float = 0.95
) -> Interval:
    """Percentile interval of mean(a) - mean(b) under resampling of problems; ``a``, ``b`` (n,) are paired.

    A resample of n pairs only matters by how often each distinct difference came: one multinomial draw.
    """
    difference = _paired(a, b)
    values, counts = np.unique(difference, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(difference.size, counts / difference.size, size=resamples)
    low, high = np.quantile(drawn @ values / difference.size, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(difference.mean()), float(low), float(high))


def mcnemar(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided exact p value that two paired 0/1 outcomes (n,) are right equally often.

    Binomial test at one half on the pairs that differ; 1 when none does.
    """
    difference = _paired(a, b)
    only_a, only_b = int((difference > 0).sum()), int((difference < 0).sum())
    n = only_a + only_b
    tail = sum(math.comb(n, i) for i in range(min(only_a, only_b) + 1))
    return min(1.0, 2 * tail / 2**n)


def paired_permutation(
    a: Sequence[float], b: Sequence[float], *, seed: int = 0, resamples: int = 100_000
) -> float:
    """Two-sided p value that ``a`` and ``b`` (n,), paired, have the same mean: signs flipped at random.

    Exact (McNemar's test) where the differences are one size, as for single runs; otherwise over
    ``resamples`` seeded draws, the observed one counted in, so that it is never zero.
    """
    difference = _paired(a, b)
    sizes, counts = np.unique(np.abs(difference[difference != 0]), return_counts=True)
    if sizes.size <= 1:
        return mcnemar(a, b)
    heads = np.random.default_rng(seed).binomial(counts, 0.5, size=(resamples, sizes.size))
    drawn = np.abs((2 * heads - counts) @ sizes)
    observed = abs(float(difference.sum()))
    return float((1 + np.count_nonzero(drawn >= observed - 1e-9)) / (resamples + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm-corrected ``p_values``, in the order given: family-wise error, no assumption of independence."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


def _paired(a: Sequence[float], b: Sequence[float]) -> np.ndarray:
    if len(a) != len(b) or len(a) == 0:
        raise ValueError(f"expected two paired, non-empty sequences, got lengths {len(a)} and {len(b)}")
    return np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
