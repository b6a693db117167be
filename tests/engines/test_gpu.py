"""What only a GPU shows: recorded steps, half precision, and memory that really runs out."""

from contextlib import contextmanager

import pytest
import torch

from soft_reasoning.engines import huggingface
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.engines.runners import TreeRunner
from soft_reasoning.types import Request
from tests.engines.models import VOCABULARY, tiny

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]


def engine_of(dtype=torch.float32, **options) -> HuggingFaceEngine:
    return HuggingFaceEngine.from_loaded(tiny("llama").to("cuda", dtype), FakeTokenizer(), **options)


def requests(count: int, length: int, new: int) -> list[Request]:
    """Of ``count`` random prompts."""
    ids = torch.randint(3, VOCABULARY, (count, length), generator=torch.Generator().manual_seed(0))
    return [Request(tuple(row), max_new_tokens=new, min_new_tokens=new) for row in ids.tolist()]


def uneven(engine: HuggingFaceEngine) -> list[Request]:
    """Some with a soft token; rows end one after the other, and the longest outgrow their buffers."""
    return [
        Request(r.prompt_ids, soft=engine.embed([5 + i]) if i % 2 else None, max_new_tokens=5 + 15 * i,
                min_new_tokens=5 + 15 * i)
        for i, r in enumerate(requests(10, 40, 1))
    ]  # fmt: skip


@contextmanager
def memory_left(size: int):
    """Inside, this process may take ``size`` more bytes than it has."""
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + size) / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_recorded_steps_give_the_same_tokens():
    recorded, launched = engine_of(compile=True), engine_of(compile=False)
    ours, theirs = (engine.generate(uneven(engine)) for engine in (recorded, launched))
    assert recorded._runner.record and not launched._runner.record, "nothing failed to be recorded"
    for one, other in zip(ours, theirs, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-3)


def test_bfloat16():
    engine = engine_of(torch.bfloat16)
    assert isinstance(engine._runner, TreeRunner) and engine.model.dtype == torch.bfloat16
    for request, done in zip(uneven(engine), engine.generate(uneven(engine)), strict=True):
        assert len(done.token_ids) == len(done.logprobs) == request.max_new_tokens
        assert torch.tensor(done.logprobs).isfinite().all() and max(done.logprobs) <= 1e-3


def test_a_batch_beyond_memory_is_halved():
    """2,048 rows need 128 MiB for keys and values alone."""
    engine, asked = engine_of(max_batch_tokens=10**6), requests(2048, 40, 20)
    engine.generate(asked[:64])  # what libraries allocate once
    with memory_left(96 * 2**20):
        done = engine.generate(asked)
    assert [len(one.token_ids) for one in done] == [20] * len(asked)
    assert engine.max_batch_tokens < 2048 * 60


def test_a_batch_as_large_as_free_memory_is_found_to_allow_fits(monkeypatch):
    free = torch.cuda.mem_get_info()[0]
    taken = torch.empty(max(0, free - 4 * 2**30), dtype=torch.uint8, device="cuda")
    engine = engine_of()
    bound, real, sizes = engine.max_batch_tokens, huggingface.decode_batch, []

    def count(runner, batch, **options):
        sizes.append(len(batch))
        return real(runner, batch, **options)

    monkeypatch.setattr(huggingface, "decode_batch", count)
    engine.generate(requests(bound // 500, 484, 16))
    assert bound > 4096 and engine.max_batch_tokens == bound and sizes == [bound // 500]
    del taken
