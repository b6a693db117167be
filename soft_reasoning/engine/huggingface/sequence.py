"""One row of a batch: a request, its generated tokens, and the blocks of its keys and values."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.types import Request


class Sequence(RunningRequest):
    """A running request with the blocks of its keys and values.

    ``content`` identifies the prompt by one integer per position: the token id, or a negative hash of a
    soft token's bytes. Two prompts whose content is equal up to a position have equal keys and values up to
    it. ``block_table`` lists their blocks; the first ``shared_blocks`` may also belong to other sequences.
    """

    def __init__(self, ticket: int, request: Request, **limits: int) -> None:
        super().__init__(ticket, request, **limits)
        soft = () if self.soft is None else self.soft.detach().to("cpu", torch.float32)
        self.content: tuple[int, ...] = (*self.head, *map(_soft_hash, soft), *self.tail)
        self.block_table: list[int] = []
        self.shared_blocks = 0

    @property
    def max_tokens(self) -> int:
        """Maximum number of positions of the complete sequence."""
        return self.prompt_tokens + self.max_new_tokens

    @property
    def position(self) -> int:
        """The position of the newest generated token, which the next decode step computes."""
        return self.prompt_tokens + len(self.ids) - 1


def _soft_hash(row: Tensor) -> int:
    digest = hashlib.blake2b(row.contiguous().numpy().tobytes(), digest_size=16).digest()
    return -1 - int.from_bytes(digest, "little")
