"""What the Hugging Face engine says of the memory it held."""

import pytest

from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.types import Request
from tests.engines.models import BASE, needs_compiler, tiny

PROMPTS, LENGTH, NEW = 64, 40, 70
POSITION = 4 * 2 * BASE["num_hidden_layers"] * BASE["num_key_value_heads"] * 16
"""Bytes of a position's keys and values, in float32 with heads of width 16."""


def test_keys_and_values_are_those_of_all_rows_and_little_more():
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())
    before = engine.peak_bytes["kv"]
    prompts = [tuple(3 + (i * 7 + j) % 90 for j in range(LENGTH)) for i in range(PROMPTS)]
    engine.generate([Request(p, max_new_tokens=NEW, min_new_tokens=NEW) for p in prompts])
    needed = PROMPTS * (LENGTH + NEW - 1) * POSITION
    peak = engine.peak_bytes["kv"]
    assert before < needed <= peak < 1.6 * needed
    engine.generate([Request(prompts[0], max_new_tokens=2)])
    assert engine.peak_bytes == {"kv": peak}  # on the CPU nobody counts activations
    engine.begin_run()
    engine.generate([Request(prompts[0], max_new_tokens=2)])
    assert 0 < engine.peak_bytes["kv"] < peak


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=needs_compiler)])
def test_copies_of_shared_prefixes_count(compile):
    """Once 8 of 40 problems are over, the prompts of the others no longer lie side by side. Torch's products
    need a copy, beside the buffers of all 40 rows; compiled attention reads them where they are."""
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer(), compile=compile)
    soft, common = engine.embed([4]), 256
    prompts = [tuple(3 + (i * 7 + j) % 90 for j in range(common)) for i in range(40)]

    def peak(short):
        engine.begin_run()
        lengths = [2 if i % 5 == 2 else short for i in range(40)]
        engine.generate(
            [Request(p, soft=soft, common=common, max_new_tokens=n, min_new_tokens=n)
             for p, n in zip(prompts, lengths, strict=True)]
        )  # fmt: skip
        return engine.peak_bytes["kv"]

    together = peak(2)
    assert peak(6) - together == (0 if compile else 32 * common * POSITION)


def test_a_model_that_keeps_its_own_cache():
    engine = HuggingFaceEngine.from_loaded(tiny("bloom"), FakeTokenizer())
    engine.generate([Request((5,) * LENGTH, max_new_tokens=NEW, min_new_tokens=NEW)] * 8)
    width = 2 * 4 * BASE["num_hidden_layers"] * BASE["hidden_size"]
    assert engine.peak_bytes == {"kv": 8 * (LENGTH + NEW - 1) * width}
