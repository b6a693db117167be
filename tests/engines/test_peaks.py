"""What the Hugging Face engine says of the memory it used."""

from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.types import Request
from tests.engines.models import BASE, tiny

PROMPTS, LENGTH, NEW = 64, 40, 70
POSITION = 4 * 2 * BASE["num_hidden_layers"] * BASE["num_key_value_heads"] * 16
"""Bytes of a position's keys and values, in float32 with heads of width 16."""


def prompt(seed: int) -> tuple[int, ...]:
    return tuple(3 + (seed * 7 + j) % 90 for j in range(LENGTH))


def test_keys_and_values_are_those_of_all_rows_and_little_more():
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())
    before = engine.peak_bytes["kv"]
    engine.generate([Request(prompt(i), max_new_tokens=NEW, min_new_tokens=NEW) for i in range(PROMPTS)])
    needed = PROMPTS * (LENGTH + NEW - 1) * POSITION
    peak = engine.peak_bytes["kv"]
    assert before < needed <= peak < 1.3 * needed
    engine.generate([Request(prompt(0), max_new_tokens=2)])
    assert engine.peak_bytes == {"kv": peak}  # on the CPU nobody counts activations
    engine.begin_run()
    engine.generate([Request(prompt(0), max_new_tokens=2)])
    assert 0 < engine.peak_bytes["kv"] < peak


def test_what_is_cached_between_calls_is_bounded():
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer(), max_batch_tokens=512)
    for i in range(40):
        engine.generate([Request(tuple(3 + (i * 11 + 7 * j) % 400 for j in range(200)), max_new_tokens=2)])
    assert engine.peak_bytes["kv"] <= 2 * 512 * POSITION


def test_a_model_that_keeps_its_own_cache():
    engine = HuggingFaceEngine.from_loaded(tiny("bloom"), FakeTokenizer())
    engine.generate([Request((5,) * LENGTH, max_new_tokens=NEW, min_new_tokens=NEW)] * 8)
    width = 2 * 4 * BASE["num_hidden_layers"] * BASE["hidden_size"]
    assert engine.peak_bytes == {"kv": 8 * (LENGTH + NEW - 1) * width}
    engine.begin_run()
    assert engine.peak_bytes == {"kv": 0}
