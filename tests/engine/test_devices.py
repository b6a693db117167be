"""Which device, how many threads, and how much memory for keys and values."""

import itertools
import logging
from time import perf_counter

import pytest
import torch

from soft_reasoning.engine import devices
from soft_reasoning.engine.devices import choose_device, choose_threads, fitting_tokens, product_speeds
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.types import UserError


@pytest.mark.parametrize(
    ("cuda", "mps", "chosen"), [(True, True, "cuda"), (False, True, "cpu"), (False, False, "cpu")]
)
def test_the_device_that_is_there_is_chosen(monkeypatch, cuda, mps, chosen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)  # untested, so only if it is named
    monkeypatch.setattr(torch, "empty", lambda *_, device: device)  # there is no such device here
    assert choose_device(None).type == chosen


def test_what_8_billion_parameters_leave_free_on_a_card_of_24_gb(monkeypatch, caplog):
    each = 2 * 32 * 8 * 128 * 2  # Llama 3 8B in bfloat16
    free = 24 * 2**30 - 500 * 2**20 - 16_060_522_496  # CUDA itself takes about 500 MB
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 24 * 2**30))
    with caplog.at_level(logging.INFO):
        tokens = fitting_tokens(torch.device("cuda"), each)
    assert tokens * each <= free / 2 < (tokens + 1) * each
    assert caplog.messages == [
        "keys and values of running requests take at most 4.6 GB, half of what the weights leave free: "
        "35,037 tokens (engine.max_batch_tokens)"
    ]
    assert [record.levelname for record in caplog.records] == ["INFO"]


@pytest.mark.slow
@pytest.mark.parametrize(("variable", "threads", "used"), [(None, None, 1), (None, 2, 2), ("3", None, 3)])
def test_a_small_model_gets_one_thread_unless_the_user_says(monkeypatch, caplog, variable, threads, used):
    before = torch.get_num_threads()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    try:
        torch.set_num_threads(3)
        with caplog.at_level(logging.INFO):
            HuggingFaceEngine("demo", threads=threads).close()
        assert torch.get_num_threads() == used
        told = [record.levelname for record in caplog.records if "one thread" in record.message]
        assert told == (["INFO"] if used == 1 else [])
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def three_threads(monkeypatch):
    """Threads as PyTorch has them by default."""
    before = torch.get_num_threads()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("speed, used", [(40e9, 1), (60e9, 1), (150e9, 3)])
def test_threads_that_gain_little_here_are_not_used(monkeypatch, caplog, three_threads, speed, used):
    kind = torch.float32
    monkeypatch.setattr(devices, "product_speeds", lambda width: {(kind, 1): 50e9, (kind, 3): speed})
    with caplog.at_level(logging.INFO):
        choose_threads(None, 135_000_000, kind, 576)
    assert torch.get_num_threads() == used
    told = f"products reach 50 GFLOPS with one thread here and {speed / 1e9:.0f} with 3 (engine.threads)"
    assert caplog.messages == [f"{used} thread{'s' if used > 1 else ''}: {told}"]
    monkeypatch.setattr(devices, "product_speeds", lambda width: 1 / 0)  # named, or too small to ask
    choose_threads(2, 135_000_000, kind, 576)
    assert torch.get_num_threads() == 2
    choose_threads(None, 1_000_000, kind, 64)
    assert torch.get_num_threads() == 1


def test_speeds_are_measured_in_little_time(three_threads):
    product_speeds.cache_clear()
    start = perf_counter()
    speeds = product_speeds(512)
    assert perf_counter() - start < 5  # of a busy machine
    assert torch.get_num_threads() == 3
    assert {*speeds} == {(kind, count) for kind in (torch.float32, torch.bfloat16) for count in (1, 3)}
    assert all(speed > 0 for speed in speeds.values())
    assert product_speeds(512) is speeds


def test_products_that_other_work_slows_do_not_count(monkeypatch, three_threads):
    torch.set_num_threads(1)
    ends = itertools.accumulate(itertools.cycle([1e-3, 9e-3, 2e-3, 8e-3]))  # each product, and what follows
    monkeypatch.setattr(devices, "thread_time", lambda: next(ends))
    product_speeds.cache_clear()
    speeds = product_speeds(512)
    product_speeds.cache_clear()
    operations = 2 * devices.ROWS_TIMED * 512 * (devices.OPERATIONS_TIMED // (2 * devices.ROWS_TIMED * 512))
    assert {round(operations / speed, 9) for speed in speeds.values()} <= {1e-3, 2e-3}


def test_a_number_of_threads_that_cannot_be_is_refused():
    with pytest.raises(UserError, match="^threads: expected a whole number"):
        HuggingFaceEngine("demo", threads=0)
