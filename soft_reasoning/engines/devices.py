"""Devices and their memory: choosing a device, and errors when memory runs out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from soft_reasoning.types import UserError

RAN_OUT = (
    "out of memory", "can't allocate memory", "not enough memory", "STATUS_ALLOC_FAILED",
    "could not create a memory object", "could not create a primitive",
)  # fmt: skip
"""What PyTorch's allocators, CUDA and its libraries and, last, oneDNN say."""


def device_of(name: str | None) -> torch.device:
    """Return the device ``name`` of this machine; None is a GPU if there is one, else the CPU.

    Raises:
        UserError: If there is no such device.
    """
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name is None else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(
            f"engine.device: expected a device of this machine, such as cpu, got {name!r} "
            f"({str(error).partition(chr(10))[0]}); leave it out to take what there is"
        ) from error
    return device


def keep_freed_memory() -> None:
    """Let tensors reuse memory that others freed.

    The C library returns large freed blocks to the system, and touching new ones may cost more than the
    work they are for. Freeing one large block raises the threshold, up to 32 MiB.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def free_memory() -> int:
    """Return how many bytes of main memory are free, or can be; 8 GiB where the system does not say."""
    try:
        with open("/proc/meminfo") as file:
            sizes = dict(line.split(":") for line in file)
        return int(sizes["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return 8 * 2**30


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether ``error``, or an error it was raised from, says that memory ran out."""
    if error is None:
        return False
    said = isinstance(error, RuntimeError) and any(words in str(error) for words in RAN_OUT)
    return said or isinstance(error, MemoryError) or is_out_of_memory(error.__context__)


@contextmanager
def memory_for(model: str) -> Iterator[None]:
    """Raise a UserError if memory runs out while ``model`` is loaded or probed."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(too_large(model, error)) from error


def too_large(model: str, error: Exception) -> str:
    """Say in one line that memory does not suffice for ``model``."""
    return (
        f"expected memory for the model {model}, and it ran out ({' '.join(str(error).split())[:200]}); free "
        "the device of other work, or take model.dtype=bfloat16, quantised weights, several devices "
        "(model.device_map=auto; with vLLM engine.tensor_parallel_size=2) or a smaller model"
    )
