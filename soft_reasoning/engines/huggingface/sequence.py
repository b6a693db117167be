"""One row of a batch: a request, what was generated for it, and the blocks that hold its keys and values."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from soft_reasoning.engines.base import PreparedRequest
from soft_reasoning.engines.output import Output


class Sequence:
    """A request on its way through the engine.

    ``content`` identifies the prompt, one integer per position: the token id, or for a soft token a negative
    hash of its bytes. Two prompts with equal content up to a position have equal keys and values up to it.
    ``block_table`` lists the blocks that hold them; the first ``shared_blocks`` may belong to other sequences
    as well. ``cached_tokens`` counts prompt positions that were not computed for this sequence.
    """

    def __init__(self, index: int, prepared: PreparedRequest) -> None:
        self.index, self.prepared = index, prepared
        self.content = (*prepared.head, *map(_soft_hash, _rows(prepared.soft)), *prepared.tail)
        self.reset()

    def reset(self) -> None:
        """Start again, as if nothing had been computed."""
        self.output = Output(self.prepared)
        self.block_table: list[int] = []
        self.shared_blocks = 0
        self.cached_tokens = 0

    @property
    def prompt_tokens(self) -> int:
        return len(self.content)

    @property
    def most_tokens(self) -> int:
        """Positions that it holds when it is complete."""
        return len(self.content) + self.prepared.max_new_tokens

    @property
    def position(self) -> int:
        """The position of the newest generated token, which the next decode step computes."""
        return len(self.content) + len(self.output.ids) - 1


def _rows(soft: Tensor | None) -> list[Tensor]:
    return [] if soft is None else list(soft.detach().to("cpu", torch.float32))


def _soft_hash(row: Tensor) -> int:
    digest = hashlib.blake2b(row.contiguous().numpy().tobytes(), digest_size=16).digest()
    return -1 - int.from_bytes(digest, "little")
