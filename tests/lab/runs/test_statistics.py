"""Statistics against closed forms, limits and enumeration."""

import itertools

import numpy as np
import pytest
from scipy.stats import binomtest

from soft_reasoning.lab.reports.statistics import holm, paired_bootstrap, paired_permutation, wilson


@pytest.mark.parametrize(("correct", "n"), [(0, 5), (3, 7), (40, 40), (77, 100)])
def test_intervals_of_shares_are_wilsons(correct, n):
    expected = binomtest(correct, n).proportion_ci(method="wilson")
    assert wilson(correct / n, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_bootstrap_agrees_with_the_normal_interval_and_with_plain_resampling():
    rng = np.random.default_rng(1)
    a, b = (rng.random(400) < 0.6).astype(float), (rng.random(400) < 0.5).astype(float)
    interval = paired_bootstrap(a, b, seed=3, resamples=20_000)
    stderr = (a - b).std() / 20
    assert interval.difference == pytest.approx((a - b).mean())
    assert interval.low == pytest.approx(interval.difference - 1.96 * stderr, abs=0.004)
    assert interval.high == pytest.approx(interval.difference + 1.96 * stderr, abs=0.004)
    plain = (a - b)[rng.integers(0, 400, size=(20_000, 400))].mean(axis=1)
    assert (interval.low, interval.high) == pytest.approx(list(np.quantile(plain, [0.025, 0.975])), abs=0.004)


def test_bootstrap_is_seeded_and_degenerates():
    a, b = [1, 0, 1, 1, 0, 1], [0, 0, 1, 0, 1, 1]
    assert paired_bootstrap(a, b, seed=1) == paired_bootstrap(a, b, seed=1)
    same = paired_bootstrap(a, a)
    assert (same.difference, same.low, same.high) == (0, 0, 0)


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    [(0, 0, 1.0), (5, 0, 2 / 32), (1, 9, 22 / 1024), (7, 7, 1.0)],
)
def test_of_single_runs_it_is_mcnemars_exact_binomial(only_a, only_b, p):
    a = [1] * only_a + [0] * only_b + [1, 0, 1]
    b = [0] * only_a + [1] * only_b + [1, 0, 1]
    assert paired_permutation(a, b) == paired_permutation(b, a) == pytest.approx(p)


def test_permutation_agrees_with_enumeration():
    difference = np.array([1, 1 / 3, 2 / 3, -1 / 3, 1, 0, 2 / 3, -1 / 3, 1 / 3])
    signs = np.array(list(itertools.product([-1, 1], repeat=difference.size)))
    exact = np.mean(np.abs(signs @ difference) >= abs(difference.sum()) - 1e-9)
    assert paired_permutation(difference, np.zeros(9), seed=0) == pytest.approx(exact, abs=0.005)
    assert paired_permutation(difference, np.zeros(9)) == paired_permutation(difference, np.zeros(9))


def test_holm_by_hand_and_its_bounds():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == [] and holm([0.7, 0.8]) == [1.0, 1.0]
