"""Which device, how many threads, and how much memory for keys and values."""

import pytest
import torch

from soft_reasoning.checks import OptionError
from soft_reasoning.engine.devices import choose_device, choose_threads, fitting_tokens


@pytest.mark.parametrize(
    ("cuda", "mps", "chosen"), [(True, True, "cuda"), (False, True, "cpu"), (False, False, "cpu")]
)
def test_the_device_that_is_there_is_chosen(monkeypatch, cuda, mps, chosen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)  # untested, so only if it is named
    monkeypatch.setattr(torch, "empty", lambda *_, device: device)  # there is no such device here
    assert choose_device(None).type == chosen


def test_what_8_billion_parameters_leave_free_on_a_card_of_24_gb(monkeypatch):
    each = 2 * 32 * 8 * 128 * 2  # Llama 3 8B in bfloat16
    free = 24 * 2**30 - 500 * 2**20 - 16_060_522_496  # CUDA itself takes about 500 MB
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 24 * 2**30))
    tokens = fitting_tokens(torch.device("cuda"), each)
    assert tokens * each <= free / 2 < (tokens + 1) * each


@pytest.mark.parametrize("name", ["hpu", "vulkan", "meta:-1", "cuda:99", "gpu", 5.5])
def test_a_device_that_is_not_there_is_one_line(name):
    with pytest.raises(
        OptionError, match=f"^device: expected a device of this machine.*got {name!r}"
    ) as error:
        choose_device(name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("variable", "threads", "parameters", "used"),
    [(None, None, 10**6, 1), (None, None, 10**9, 3), (None, 2, 10**6, 2), ("3", None, 10**6, 3)],
)
def test_a_small_model_gets_one_thread_unless_the_user_says(monkeypatch, variable, threads, parameters, used):
    before = torch.get_num_threads()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    try:
        torch.set_num_threads(3)
        choose_threads(threads, parameters)
        assert torch.get_num_threads() == used
    finally:
        torch.set_num_threads(before)
