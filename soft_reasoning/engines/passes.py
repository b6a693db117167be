"""One forward pass: its tokens, packed in a row without padding to the longest, and the keys they see.

A pass is the cache that the model is given: the model hands it new keys and values, and
:func:`soft_reasoning.engines.tree.tree_attention` asks it what its queries may read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from soft_reasoning.engines.kv import MASKED, OwnKeys, Part


@dataclass
class Bucket:
    """``rows`` rows of ``steps`` tokens each, side by side in the packed pass from token ``first`` on."""

    first: int
    rows: int
    steps: int
    parts: list[Part]
    positions: Tensor  # (rows, steps)
    longest: int  # one more than the largest position
    _biases: dict[Any, Tensor | None] = field(default_factory=dict)

    @property
    def tokens(self) -> slice:
        return slice(self.first, self.first + self.rows * self.steps)

    def split(self, packed: Tensor) -> Tensor:
        """(rows, heads, steps, width) of ``packed`` (tokens, heads, width)."""
        return packed[self.tokens].unflatten(0, (self.rows, self.steps)).transpose(1, 2)

    def part_bias(self, part: int, window: int | None, repeat: int) -> Tensor | None:
        """``Part.bias`` of ``parts[part]``, made once a pass."""
        key = (part, window, repeat)
        if key not in self._biases:
            self._biases[key] = self.parts[part].bias(window, self.positions, repeat)
        return self._biases[key]


class Kept(Protocol):
    """Where a pass leaves keys and values: a ``Block`` or the rows' ``OwnKeys``."""

    def store(self, layer: int, which: Tensor, keys: Tensor, values: Tensor) -> None: ...


class Pass(Cache):
    """What a model's layers hand their keys and values to, and :func:`attend` then reads."""

    buckets: list[Bucket]

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._biases: dict[Any, Tensor | None] = {}

    def keep(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Take the packed tokens' ``k`` (N, heads, d) and ``v`` (N, heads, dv)."""
        raise NotImplementedError

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any):
        """As transformers calls it, with (1, heads, N, d); what attention reads stays here."""
        self.keep(layer_idx, key_states[0].transpose(0, 1), value_states[0].transpose(0, 1))
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0


class Prefill(Pass):
    """Rows of several tokens, each seeing its own earlier ones and its shared parts.

    ``targets[i]`` (rows,) says which rows of ``kept`` those of ``buckets[i]`` are.
    """

    def __init__(self, buckets: Sequence[Bucket], targets: Sequence[Tensor], kept: Kept) -> None:
        super().__init__()
        self.buckets, self._targets, self._kept = list(buckets), list(targets), kept

    def keep(self, layer: int, k: Tensor, v: Tensor) -> None:
        for bucket, which in zip(self.buckets, self._targets, strict=True):
            self._kept.store(layer, which, bucket.split(k), bucket.split(v))

    def own_bias(self, bucket: Bucket, first: int, end: int, window: int | None, repeat: int) -> Tensor:
        """(1, 1, repeat * (end - first), end): causal, for queries ``first`` to ``end`` of a row."""
        key = (first, end, window, repeat)
        if key not in self._biases:
            at = torch.arange(end, device=bucket.positions.device)
            back = at[first:].view(-1, 1) - at
            seen = (back >= 0) if window is None else (back >= 0) & (back < window)
            self._biases[key] = torch.where(seen, 0.0, MASKED).repeat(repeat, 1)[None, None]
        return self._biases[key]


class Step(Pass):
    """One token of every row, behind the keys that it has in ``own_keys``."""

    def __init__(self, bucket: Bucket, own_keys: OwnKeys) -> None:
        super().__init__()
        self.buckets, self._own = [bucket], own_keys

    def keep(self, layer: int, k: Tensor, v: Tensor) -> None:
        self._own.append(layer, k, v)

    def own(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values (R, heads, L, width) so far, L a multiple of ``TILE``."""
        return self._own.keys[layer], self._own.values[layer]

    def own_bias(self, bucket: Bucket, window: int | None) -> Tensor | None:
        """(R or 1, 1, 1, L): 0 for keys that may be seen, MASKED for the rest; None if all may be."""
        if window not in self._biases:
            self._biases[window] = self._bias(window, bucket.positions.device)
        return self._biases[window]

    def _bias(self, window: int | None, device: torch.device) -> Tensor | None:
        counts, end = self._own.counts, self._own.capacity
        same = min(counts) == max(counts)
        if same and window is None and counts[0] + 1 == end:
            return None
        last = torch.tensor(counts[:1] if same else counts, device=device)
        back = last.view(-1, 1, 1, 1) - torch.arange(end, device=device)
        seen = (back >= 0) if window is None else (back >= 0) & (back < window)
        return torch.where(seen, 0.0, MASKED)
