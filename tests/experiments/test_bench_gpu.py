"""The GPU benchmark, small enough for a CPU."""

import re
import sys

from experiments import bench_gpu


def test_it_runs_on_a_cpu(monkeypatch, capsys):
    small = "--device cpu --layers 1 --width 32 --vocabulary 200 --problems 2 --new-tokens 12".split()
    monkeypatch.setattr(sys, "argv", ["bench_gpu.py", *small])
    bench_gpu.main()
    header, _, stopping, whole = re.sub(" +", " ", capsys.readouterr().out).splitlines()[:4]
    assert header.split(" | ")[3:5] == ["seconds", "tokens/s"]
    assert stopping.startswith("| as it stops |") and whole.startswith("| all four | 4.00 |")
