"""Correlation matrices of sampled points: hand-made rounds, and problems that stop early."""

import sys

import numpy as np

from experiments.paper import correlation
from experiments.paper.correlation import correlation_matrices
from soft_reasoning.answers import Grader
from soft_reasoning.lab.runs.records import Record
from soft_reasoning.types import Candidate, Problem, Result


def record(*rounds):
    """A record from rounds of (reward, point) pairs."""
    candidates = [
        Candidate("", None, r, reward=reward, u=point)
        for r, group in enumerate(rounds)
        for reward, point in group
    ]
    return Record.new(Problem("p", "?"), Result(None, tuple(candidates)), Grader())


UP, DOWN, FLAT = (0.0, 1.0, 2.0), (2.0, 1.0, 0.0), (1.0, 3.0, 1.0)


def test_points_stand_by_round_and_reward():
    matrices, sizes = correlation_matrices([record([(0.1, DOWN), (0.9, UP)], [(0.5, FLAT), (0.7, UP)])])
    assert sizes == [2, 2] and [m.shape for m in matrices] == [(2, 2), (4, 4)]
    np.testing.assert_allclose(matrices[0], [[1, -1], [-1, 1]], atol=1e-12)
    expected = np.corrcoef([UP, DOWN, UP, FLAT])  # rewards 0.9, 0.1 | 0.7, 0.5
    np.testing.assert_allclose(matrices[1], expected, atol=1e-12)


def test_a_runs_plot_and_table(run, tmp_path, monkeypatch, capsys):
    small = ["model=demo", "dataset=demo", "limit=2", "engine=fake", "progress=false", "max_new_tokens=20"]
    assert run("+experiment=paper_correlation", "hydra.run.dir=runs/low", *small).returncode == 0
    monkeypatch.setattr(sys, "argv", ["correlation", "runs/low"])
    correlation.main()
    assert capsys.readouterr().out.count("| low ") == 5
    assert (tmp_path / "runs" / "low" / "correlation.png").exists()
