"""What only a GPU shows: half precision, and memory that really runs out."""

from contextlib import contextmanager

import pytest
import torch

from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.engine.huggingface.model_runner import ModelRunner
from soft_reasoning.types import Request
from tests.engine.models import VOCABULARY, tiny

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
        Request(
            r.prompt_ids,
            soft=engine.embed([5 + i]) if i % 2 else None,
            max_new_tokens=5 + 15 * i,
            min_new_tokens=5 + 15 * i,
        )
        for i, r in enumerate(requests(10, 40, 1))
    ]


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


def test_greedy_tokens_equal_those_on_the_cpu():
    gpu, cpu = engine_of(), HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())
    for completion, expected in zip(gpu.generate(uneven(gpu)), cpu.generate(uneven(cpu)), strict=True):
        assert completion.token_ids == expected.token_ids
        assert completion.logprobs == pytest.approx(expected.logprobs, abs=1e-3)


def test_bfloat16():
    engine = engine_of(torch.bfloat16)
    assert isinstance(engine._runner, ModelRunner) and engine.model.dtype == torch.bfloat16
    for request, done in zip(uneven(engine), engine.generate(uneven(engine)), strict=True):
        assert len(done.token_ids) == len(done.logprobs) == request.max_new_tokens
        assert torch.tensor(done.logprobs).isfinite().all() and max(done.logprobs) <= 1e-3


def test_a_batch_beyond_memory_is_halved():
    """The pool of a million positions takes 519 MiB, when the first pass needs it."""
    engine, asked = engine_of(max_batch_tokens=10**6), requests(2048, 40, 20)
    engine_of(max_batch_tokens=4096).generate(asked[:64])  # what libraries allocate once
    with memory_left(96 * 2**20):
        completions = engine.generate(asked)
    assert [len(completion.token_ids) for completion in completions] == [20] * len(asked)
    assert engine.max_batch_tokens < 2048 * 60
