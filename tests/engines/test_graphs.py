"""What becomes of a decode step that cannot be recorded; the recording itself needs a GPU (test_gpu.py)."""

from contextlib import nullcontext

import pytest
import torch

from soft_reasoning.engines import dense, graphs
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.types import Request
from tests.engines.models import tiny

REQUESTS = [Request((5 + i, *range(6, 20)), max_new_tokens=6, min_new_tokens=6) for i in range(8)]


def recording(monkeypatch, error):
    """An engine that records steps, which fails for more than three rows."""

    class Recorded:
        def __init__(self, run, example):
            if len(example) > 3:
                raise error
            self.run = run

        def __call__(self, x):
            return self.run(x)

    monkeypatch.setattr(dense, "Recorded", Recorded)
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer(), compile=False)
    monkeypatch.setattr(engine._calls, "batch_size", lambda count: count)  # as on a GPU
    engine._runner.record = True
    return engine


def test_memory_that_runs_out_while_recording_halves_the_batch(monkeypatch):
    engine = recording(monkeypatch, torch.OutOfMemoryError("CUDA out of memory"))
    assert [len(done.token_ids) for done in engine.generate(REQUESTS)] == [6] * len(REQUESTS)
    assert engine._runner.record, "smaller batches are recorded"


def test_what_cannot_be_recorded_runs_unrecorded(monkeypatch):
    plain = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer()).generate(REQUESTS)
    engine = recording(monkeypatch, RuntimeError("operation not permitted when stream is capturing"))
    bound = engine.max_batch_tokens
    assert [done.token_ids for done in engine.generate(REQUESTS)] == [done.token_ids for done in plain]
    assert not engine._runner.record and engine.max_batch_tokens == bound


def test_a_failed_recording_leaves_its_stream(monkeypatch):
    """``torch.cuda.graph`` does not where it cannot end the recording."""
    now = ["default"]

    class Graph:
        def __init__(self, graph, stream):
            self.stream = stream

        def __enter__(self):
            now[0] = self.stream

        def __exit__(self, *_):
            raise RuntimeError("the recording was invalidated")

    for name, fake in (
        ("CUDAGraph", object), ("graph", Graph), ("device", nullcontext),
        ("current_stream", lambda: now[0]), ("set_stream", lambda stream: now.__setitem__(0, stream)),
    ):  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(graphs, "_stream", lambda device: "recording")
    with pytest.raises(RuntimeError, match="invalidated"):
        graphs.Recorded(lambda x: x, torch.zeros(2, 3))
    assert now == ["default"]
