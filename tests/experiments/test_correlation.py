"""Correlation matrices of sampled points: hand-made rounds, and problems that stop early."""

import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.paper import correlation
from experiments.paper.correlation import correlation_matrices


def record(*rounds):
    """A record from rounds of (reward, point) pairs."""
    return {
        "candidates": [
            {"round": r, "reward": reward, "u": point}
            for r, group in enumerate(rounds)
            for reward, point in group
        ]
    }


UP, DOWN, FLAT = (0.0, 1.0, 2.0), (2.0, 1.0, 0.0), (1.0, 3.0, 1.0)


def test_points_stand_by_round_and_reward():
    matrices, sizes = correlation_matrices([record([(0.1, DOWN), (0.9, UP)], [(0.5, FLAT), (0.7, UP)])])
    assert sizes == [2, 2] and [m.shape for m in matrices] == [(2, 2), (4, 4)]
    np.testing.assert_allclose(matrices[0], [[1, -1], [-1, 1]], atol=1e-12)
    expected = np.corrcoef([UP, DOWN, UP, FLAT])  # rewards 0.9, 0.1 | 0.7, 0.5
    np.testing.assert_allclose(matrices[1], expected, atol=1e-12)


@pytest.mark.slow
def test_a_configuration_is_run_first(tmp_path, monkeypatch, capfd):
    """As documented, and then shorter: the folder's name holds the overrides, with their equals signs."""
    monkeypatch.chdir(tmp_path)
    small = ["model=demo", "dataset=demo", "limit=2", "progress=false"]
    monkeypatch.setattr(sys, "argv", ["correlation", "+experiment=paper_correlation", *small])
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    correlation.main()
    assert capfd.readouterr().out.count("| correlation-+experiment=paper_correlation") == 5
    assert list(tmp_path.glob("runs/correlation-*/correlation.png"))
