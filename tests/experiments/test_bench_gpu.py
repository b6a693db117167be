"""The GPU benchmark, small enough for a CPU."""

import re
import sys

import pytest
import torch

from experiments import bench_gpu


def test_it_runs_on_a_cpu(monkeypatch, capsys):
    small = "--device cpu --layers 1 --width 32 --vocabulary 200 --problems 2 --new-tokens 12".split()
    monkeypatch.setattr(sys, "argv", ["bench_gpu.py", *small])
    bench_gpu.main()
    header, _, stopping, whole = re.sub(" +", " ", capsys.readouterr().out).splitlines()[:4]
    assert header.split(" | ")[3:5] == ["seconds", "tokens/s"]
    assert stopping.startswith("| as it stops |") and whole.startswith("| all four | 4.00 |")


def test_without_a_gpu_it_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["bench_gpu.py"])
    with pytest.raises(SystemExit) as stop:
        bench_gpu.main()
    lines = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and len(lines) == 1 and "needs a GPU" in lines[0]
