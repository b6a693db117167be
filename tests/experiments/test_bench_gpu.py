"""The GPU benchmark, small enough for a CPU."""

import sys

import pytest
import torch

from experiments import bench_gpu
from soft_reasoning.engines.base import PreparedRequest


def test_it_runs_on_a_cpu(monkeypatch, capsys):
    small = "--device cpu --layers 1 --width 32 --vocabulary 200 --problems 2 --new-tokens 12".split()
    monkeypatch.setattr(sys, "argv", ["bench_gpu.py", *small])
    bench_gpu.main()
    header, _, stopping, whole = capsys.readouterr().out.splitlines()[:4]
    assert header.split(" | ")[3:5] == ["seconds", "tokens/s"]
    assert stopping.startswith("| as it stops |") and whole.startswith("| all four | 4.00 |")


def test_without_a_gpu_it_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["bench_gpu.py"])
    with pytest.raises(SystemExit) as stop:
        bench_gpu.main()
    lines = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and len(lines) == 1 and "needs a GPU" in lines[0]


def test_the_bound_counts_every_byte_once_a_step():
    class Engine:
        def __init__(self):
            arguments = type("", (), {"device": "cpu", "layers": 2, "width": 16, "vocabulary": 50})
            self.model = bench_gpu.build_model(arguments)

        def check(self, request):
            return PreparedRequest(request, request.prompt_ids, None, (), request.max_new_tokens)

        def generate(self, requests):
            return [bench_gpu.Completion((1,) * n, (0.0,) * n, "", "length", 3) for n in (2, 4, 1)]

    metered = bench_gpu.Metered(Engine())
    metered.generate([bench_gpu.Request(ids) for ids in ((5, 6, 7), (5, 6, 7), (8,))])
    kv = 2 * 2 * 1 * 4 * 4  # keys and values, layers, heads, width, bytes of a float
    assert metered.position == kv
    prompts = 4 * 3 + 1 * 1
    own = (1 + 2) + (1 + 2 + 3 + 4) + 1
    assert metered.bytes == 4 * metered.weights + kv * (prompts + own)
