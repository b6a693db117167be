"""Devices and their memory: choosing a device, and errors when memory runs out."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from time import perf_counter, thread_time

import psutil
import torch
from torch import Tensor

from soft_reasoning.checks import OptionError
from soft_reasoning.types import UserError

RAN_OUT = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "STATUS_ALLOC_FAILED",
    "could not create a memory object",
    "could not create a primitive",
)
"""Texts in errors of PyTorch's allocators, CUDA and its libraries and, last, oneDNN."""

CPU_BYTES = 2**31
"""Maximum memory for keys and values outside a GPU; they also take at most a quarter of free memory."""

SMALL_MODEL_PARAMETERS = 20_000_000
"""Models with fewer parameters have passes too short to be shared among threads."""

ROWS_TIMED, OPERATIONS_TIMED, SECONDS_TIMED = 64, 10**8, 0.05
"""Rows and operations of a product that is timed, and for how long all of them are."""
GAIN = 1.25
"""How much faster more threads, or bfloat16, must be on the CPU to be chosen."""

log: logging.Logger = logging.getLogger(__name__)


def choose_device(name: str | None) -> torch.device:
    """Return the device ``name``; for None cuda if the machine has it, else the CPU.

    Raises:
        UserError: If there is no such device.
    """
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise OptionError(
            "device",
            f"expected a device of this machine, such as cpu, got {name!r} "
            f"({str(error).partition(chr(10))[0]}); leave it out to choose one automatically",
        ) from error
    return device


def fitting_tokens(device: torch.device, position_bytes: float) -> int:
    """Return how many positions fit into memory next to the loaded weights; on a GPU, log it.

    On a GPU half of the free memory is used, since activations need the rest. Elsewhere it is a quarter, and
    at most ``CPU_BYTES``.
    """
    on_gpu, free = device.type == "cuda", min(CPU_BYTES, psutil.virtual_memory().available // 4)
    if on_gpu:
        free = torch.cuda.mem_get_info(device)[0] // 2
    tokens = max(4096, int(free / max(position_bytes, 1)))
    if on_gpu and position_bytes:
        log.info(
            "keys and values of running requests take at most %.1f GB, half of what the weights leave free: "
            "%s tokens (engine.max_batch_tokens)",
            tokens * position_bytes / 1e9,
            f"{tokens:,}",
        )
    return tokens


@cache
def product_speeds(width: int) -> dict[tuple[torch.dtype, int], float]:
    """Operations per second on this CPU of a linear layer of ``width`` inputs, by dtype and threads.

    It takes about ``SECONDS_TIMED``. The fastest product counts, since other work only slows products. One
    thread is timed by the processor's clock. Several threads are timed by the wall's: where other work takes
    a core, they wait for each other.
    """
    most, speeds = torch.get_num_threads(), dict[tuple[torch.dtype, int], float]()
    columns = max(64, OPERATIONS_TIMED // (2 * ROWS_TIMED * width))
    kinds = [(dtype, count) for dtype in (torch.float32, torch.bfloat16) for count in sorted({1, most})]
    try:
        for dtype, count in kinds:
            torch.set_num_threads(count)
            rows, weight = torch.ones(ROWS_TIMED, width, dtype=dtype), torch.ones(columns, width, dtype=dtype)
            torch.nn.functional.linear(rows, weight)  # sets its threads and kernels up
            clock = thread_time if count == 1 else perf_counter
            start, fastest = clock(), math.inf
            while (begun := clock()) - start < SECONDS_TIMED / len(kinds) or fastest == math.inf:
                torch.nn.functional.linear(rows, weight)
                fastest = min(fastest, clock() - begun)
            speeds[dtype, count] = 2 * ROWS_TIMED * width * columns / fastest
    finally:
        torch.set_num_threads(most)
    return speeds


def choose_threads(threads: int | None, parameters: int, dtype: torch.dtype, width: int) -> None:
    """Compute with ``threads`` threads from now on; None is one for a small model, or if more gain little.

    The passes of a small model are short. On a busy machine, threads that wait for each other in every pass
    take many times as long as one thread. Settings in the user's environment have priority.
    """
    in_environment = any(name in os.environ for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"))
    most = torch.get_num_threads()
    if threads is None and not in_environment and most > 1:
        if parameters < SMALL_MODEL_PARAMETERS:
            log.info("one thread, since the model is small (engine.threads=N takes more)")
            threads = 1
        elif (dtype, most) in (speeds := product_speeds(width)):
            one, all_of_them = speeds[dtype, 1] / 1e9, speeds[dtype, most] / 1e9
            threads = most if all_of_them > GAIN * one else 1
            reason = f"products reach {one:.0f} GFLOPS with one thread here and {all_of_them:.0f} with {most}"
            log.info("%d %s: %s (engine.threads)", threads, "thread" if threads == 1 else "threads", reason)
    if threads is not None:
        torch.set_num_threads(threads)


def current_device(device: torch.device) -> AbstractContextManager[object]:
    """Make a GPU the current one: Triton starts kernels on that of the thread, not on that of the data."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def on_device(values: Sequence[float], device: torch.device, dtype: torch.dtype = torch.long) -> Tensor:
    """A tensor of ``values`` on ``device``. Unlike a plain copy it does not wait for the work of a GPU."""
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)


def keep_freed_memory() -> None:
    """Let tensors reuse memory that was freed.

    The C library returns large freed blocks to the system, and touching new blocks may cost more than the
    computation in them. Freeing one large block raises its threshold, up to 32 MiB.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether ``error``, or an error it was raised from, says that memory ran out."""
    if error is None:
        return False
    matches = isinstance(error, RuntimeError) and any(words in str(error) for words in RAN_OUT)
    return matches or isinstance(error, MemoryError) or is_out_of_memory(error.__context__)


@contextmanager
def memory_for(model: str) -> Generator[None]:
    """Raise a UserError if memory runs out while ``model`` is loaded or probed."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(too_large(model, error)) from error


def too_large(model: str, error: Exception) -> str:
    """Return the error message for a ``model`` that does not fit into memory."""
    return (
        f"Out of memory while loading the model {model} ({' '.join(str(error).split())[:200]}); free "
        "the device of other work, or take model.dtype=bfloat16, quantised weights, several devices "
        "(model.device_map=auto; with vLLM engine.tensor_parallel_size=2) or a smaller model"
    )
