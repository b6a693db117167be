"""The pool of keys and values, and attention over it."""

import torch

from soft_reasoning.engines.huggingface.attention import KeyValuePool
from tests.engines.capturing import Capturing

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
