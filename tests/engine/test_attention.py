"""The pool of keys and values, and attention over it."""

import pytest
import torch

from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine, attention, model_runner
from soft_reasoning.engine.huggingface.attention import KeyValuePool
from soft_reasoning.types import Request
from tests.engine.capturing import Capturing
from tests.engine.models import random_ids, tiny

WIDTHS = (16, 16, 32)
"""Widths of the heads of three layers, as in Gemma 4."""


def pool_of(device: str = "cpu") -> KeyValuePool:
    """A pool of 5 blocks with ones."""
    pool = KeyValuePool(2)
    for layer, width in enumerate(WIDTHS):
        x = torch.empty(1, 2, width, device=device)
        pool.layer(layer, x, x)
    pool = pool.resized(5)
    for layer, width in enumerate(WIDTHS):
        x = torch.empty(1, 2, width, device=device)
        for tensor in pool.layer(layer, x, x):
            assert len(tensor) == 5 and tensor.is_contiguous()
            tensor.fill_(1)
    return pool


def test_blocks_are_cleared_in_all_layers():
    pool = pool_of()
    pool.clear([3, 1])
    for layer, width in enumerate(WIDTHS):
        x = torch.empty(1, 2, width)
        for tensor in pool.layer(layer, x, x):
            assert (
                tensor.flatten(1).amax(-1).tolist() == [1, 0, 1, 0, 1] == tensor.flatten(1).amin(-1).tolist()
            )
    assert pool.block_bytes == 4 * 2 * 2 * 32 * sum(WIDTHS)


def test_layers_of_one_shape_are_cleared_together_without_a_wait():
    pool = pool_of("meta")
    with Capturing() as seen:
        pool.clear([3, 1])
    assert not seen.broken and seen.kernels == ["_to_copy", *["index_fill_"] * 4]


def logits_after(engine: HuggingFaceEngine, prompts: list[tuple[int, ...]]) -> torch.Tensor:
    done = engine.generate([Request(prompt, max_new_tokens=0, next_logits=True) for prompt in prompts])
    return torch.stack([completion.next_logits for completion in done])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3_text"])
def test_long_prompts_attend_by_sequence_as_exactly_as_in_tiles(family, dtype, monkeypatch):
    """Among short ones, whole and after a cached prefix, and in passes that cut a prompt."""
    head = random_ids(100, 1)
    prompts = [
        head,
        head + random_ids(100, 2),
        random_ids(20, 3),
        head + random_ids(9, 4),
        random_ids(400, 5),
    ]
    exact = logits_after(HuggingFaceEngine.from_loaded(tiny(family), FakeTokenizer()), prompts)
    calls, flash = [], attention._flash
    monkeypatch.setattr(
        attention, "_flash", lambda *a, causal: calls.append(causal) or flash(*a, causal=causal)
    )
    monkeypatch.setitem(model_runner.PREFILL_TOKENS, "cpu", 300)
    engine = HuggingFaceEngine.from_loaded(tiny(family).to(dtype), FakeTokenizer())
    got = logits_after(engine, prompts)
    assert {*calls} == {True, False}
    monkeypatch.setitem(model_runner.LEAST_SPAN, "cpu", 10**6)
    calls.clear()
    tiles = logits_after(HuggingFaceEngine.from_loaded(tiny(family).to(dtype), FakeTokenizer()), prompts)
    assert not calls
    assert (got - exact).norm() < 1.2 * (tiles - exact).norm()


def test_in_float32_on_the_cpu_and_with_sinks_or_caps_all_attend_in_tiles(monkeypatch):
    monkeypatch.setattr(attention, "_flash", lambda *_, **__: 1 / 0)
    for model in (tiny("llama"), *(tiny(family).to(torch.bfloat16) for family in ("gpt_oss", "gemma2"))):
        logits_after(HuggingFaceEngine.from_loaded(model, FakeTokenizer()), [random_ids(200, 1)])
