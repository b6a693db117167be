"""The pool of keys and values."""

import torch

from soft_reasoning.engine.huggingface.attention import KeyValuePool

WIDTHS = (16, 16, 32)
"""Widths of the heads of three layers, as in Gemma 4."""


def layers_of(pool: KeyValuePool) -> list[torch.Tensor]:
    ones = [torch.empty(1, 2, width) for width in WIDTHS]
    return [tensor for layer, x in enumerate(ones) for tensor in pool.layer(layer, x, x)]


def test_blocks_are_cleared_in_all_layers():
    pool = KeyValuePool(2)
    assert all(len(tensor) == 2 for tensor in layers_of(pool))
    pool = pool.resized(5)
    for tensor in layers_of(pool):
        tensor.fill_(1)
    pool.clear([3, 1])
    for tensor in layers_of(pool):
        assert tensor.is_contiguous() and tensor.flatten(1).mean(-1).tolist() == [1, 0, 1, 0, 1]
    assert pool.block_bytes == 4 * 2 * 2 * 32 * sum(WIDTHS)
