"""One row of a batch: a request, its generated tokens, and the blocks of its keys and values."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from soft_reasoning.engines.output import Output, PreparedRequest


class Sequence(Output):
    """A request in the engine.

    ``content`` identifies the prompt by one integer per position: the token id, or a negative hash of a
    soft token's bytes. Two prompts whose content is equal up to a position have equal keys and values up to
    it. ``block_table`` lists their blocks; the first ``shared_blocks`` may also belong to other sequences.
    """

    def __init__(self, ticket: int, prepared: PreparedRequest) -> None:
        super().__init__(ticket, prepared)
        soft = () if prepared.soft is None else prepared.soft.detach().to("cpu", torch.float32)
        self.content: tuple[int, ...] = (*prepared.head, *map(_soft_hash, soft), *prepared.tail)
        self.block_table: list[int] = []
        self.shared_blocks = 0

    @property
    def prompt_tokens(self) -> int:
        """Positions of the prompt."""
        return len(self.content)

    @property
    def most_tokens(self) -> int:
        """Positions of the complete sequence."""
        return len(self.content) + self.prepared.max_new_tokens

    @property
    def position(self) -> int:
        """The position of the newest generated token, which the next decode step computes."""
        return len(self.content) + len(self.ids) - 1


def _soft_hash(row: Tensor) -> int:
    digest = hashlib.blake2b(row.contiguous().numpy().tobytes(), digest_size=16).digest()
    return -1 - int.from_bytes(digest, "little")
