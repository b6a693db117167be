"""The GPU benchmark of steps, small enough for a CPU."""

import sys

import pytest

from experiments import bench_gpu_steps


@pytest.mark.slow
def test_it_runs_on_a_cpu(monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["bench_gpu_steps.py", "--small", "--seconds", "85"]
    )  # ends before it compiles
    bench_gpu_steps.main()
    shown = capsys.readouterr().out
    for part in (
        "tiles |",
        "buffers |",
        "graph |",
        "kernel, 4 rows",
        "temperature 0.8",
        "by sequence",
        "Qwen2-7B graph",
    ):
        assert part in shown
    assert "Error" not in shown and shown.rstrip().endswith("done")
