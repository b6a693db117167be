"""Devices and their memory: choosing a device, and errors when memory runs out."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager

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
    except Exception as error:  # of each kind of device another
        raise OptionError(
            "device",
            f"expected a device of this machine, such as cpu, got {name!r} "
            f"({str(error).partition(chr(10))[0]}); leave it out to choose one automatically",
        ) from error
    return device


def choose_threads(threads: int | None, parameters: int) -> None:
    """Compute with ``threads`` CPU threads from now on; None is one for a small model, else as it is.

    On a busy machine, threads that wait for each other in every short pass of a small model take many times
    as long as one thread. A number of threads in the environment has priority over that.
    """
    in_environment = any(name in os.environ for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"))
    if threads is None and parameters < SMALL_MODEL_PARAMETERS and not in_environment:
        log.info("one thread, since the model is small (engine.threads=N takes more)")
        threads = 1
    if threads is not None:
        torch.set_num_threads(threads)


def fitting_tokens(device: torch.device, position_bytes: float) -> int:
    """Return how many positions fit into memory next to the loaded weights.

    On a GPU half of the free memory is used, since activations need the rest. Elsewhere it is a quarter, and
    at most ``CPU_BYTES``.
    """
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0] // 2
    else:
        free = min(CPU_BYTES, psutil.virtual_memory().available // 4)
    return max(4096, int(free / max(position_bytes, 1)))


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
    """Raise a UserError if memory runs out while ``model`` is loaded or tried out."""
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
