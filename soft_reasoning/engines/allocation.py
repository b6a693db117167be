"""How the C library deals with freed memory."""

import torch


def keep_freed_memory() -> None:
    """Let tensors reuse what others left.

    Freed memory goes back to the system, and touching it anew may cost more than the work it is for. Freeing
    one large piece raises the size from which that happens, up to 32 MiB.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)
