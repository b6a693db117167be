"""The GPU benchmark, small enough for a CPU."""

import re
import sys

import pytest

from experiments import bench_gpu


@pytest.mark.slow
def test_it_runs_on_a_cpu(monkeypatch, capsys):
    small = "--device cpu --layers 1 --width 32 --vocabulary 200 --problems 2 --new-tokens 12".split()
    small += ["--rows", "2", "3"]
    monkeypatch.setattr(sys, "argv", ["bench_gpu.py", *small])
    bench_gpu.main()
    lines = re.sub(" +", " ", capsys.readouterr().out).splitlines()
    header, _, stopping, whole = lines[:4]
    assert [line.split(" | ")[0] for line in lines[-3:-1]] == ["| decode, 2 rows", "| decode, 3 rows"]
    assert lines[-1].startswith("| prefill, 2048 tokens")
    assert header.split(" | ")[3:5] == ["seconds", "tokens/s"]
    assert stopping.startswith("| as it stops |") and whole.startswith("| all four | 4.00 |")
