"""Which device, how many threads, and how much memory for keys and values."""

import logging

import pytest
import torch

from soft_reasoning.engines.devices import fitting_tokens
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from tests.engines.models import tiny


def test_keys_and_values_take_half_of_what_the_weights_leave_free(monkeypatch, caplog):
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())
    config = engine.model.config
    each = 2 * 4 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    assert engine._runner.position_bytes == each
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (10**9, 24 * 2**30))
    with caplog.at_level(logging.WARNING):
        tokens = fitting_tokens(torch.device("cuda"), 1000)
    assert tokens == 500_000 and "at most 0.5 GB" in caplog.text and "500,000 tokens" in caplog.text


@pytest.mark.parametrize(("variable", "given", "used"), [(None, None, 1), (None, 2, 2), ("3", None, 3)])
def test_a_small_model_gets_one_thread_unless_the_user_says(monkeypatch, caplog, variable, given, used):
    before = torch.get_num_threads()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    try:
        torch.set_num_threads(3)
        HuggingFaceEngine("demo", threads=given).close()
        assert torch.get_num_threads() == used
        assert any("one thread" in message for message in caplog.messages) is (used == 1)
    finally:
        torch.set_num_threads(before)
