"""One forward pass: its tokens, packed in a row without padding to the longest, and the keys they see.

A pass is the cache that the model is given: the model hands it new keys and values, and
:func:`soft_reasoning.engines.tree.tree_attention` asks it what its queries may read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from soft_reasoning.engines.kv import MASKED, OwnKeys, Part
from soft_reasoning.engines.native import PagedAttention
from soft_reasoning.engines.pages import Layer, Pool, Reading


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

    def forget(self) -> None:
        """The positions have changed."""
        self._biases.clear()


class Kept(Protocol):
    """Where a pass leaves keys and values: a ``Block`` or the rows' ``OwnKeys``."""

    def store(self, layer: int, which: Tensor, keys: Tensor, values: Tensor) -> None: ...


class Over(Exception):
    """A pass has left all keys and values that it was for."""


class Pass(Cache):
    """What a model's layers hand their keys and values to, and attention then reads.

    ``last``: the layer behind whose keys and values nothing is wanted; None for the logits.
    """

    def __init__(self, last: int | None = None) -> None:
        super().__init__(layers=[])
        self.last = last
        self.deepest = -1

    def keep(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Take the packed tokens' ``k`` (N, heads, d) and ``v`` (N, heads, dv)."""
        raise NotImplementedError

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any):
        """As transformers calls it, with (1, heads, N, d); what attention reads stays here."""
        self.deepest = max(self.deepest, layer_idx)
        self.keep(layer_idx, key_states[0].transpose(0, 1), value_states[0].transpose(0, 1))
        if layer_idx == self.last:
            raise Over
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0


class Prefill(Pass):
    """Rows of several tokens, each seeing its own earlier ones and its shared parts.

    ``targets[i]`` (rows,) says which rows of ``kept`` those of ``buckets[i]`` are.
    """

    def __init__(
        self, buckets: Sequence[Bucket], targets: Sequence[Tensor], kept: Kept, last: int | None = None
    ) -> None:
        super().__init__(last)
        self._biases: dict[Any, Tensor] = {}
        self.buckets, self._targets, self._kept = list(buckets), list(targets), kept

    def keep(self, layer: int, k: Tensor, v: Tensor) -> None:
        for bucket, which in zip(self.buckets, self._targets, strict=True):
            self._kept.store(layer, which, bucket.split(k), bucket.split(v))

    def own_bias(self, queries: int, keys: int, window: int | None, repeat: int) -> Tensor:
        """(1, 1, repeat * queries, keys): causal, for the last ``queries`` of ``keys`` tokens of a row."""
        key = (queries, keys, window, repeat)
        if key not in self._biases:
            at = torch.arange(keys, device=self.buckets[0].positions.device)
            back = at[keys - queries :].view(-1, 1) - at
            seen = (back >= 0) if window is None else (back >= 0) & (back < window)
            self._biases[key] = torch.where(seen, 0.0, MASKED).repeat(repeat, 1)[None, None]
        return self._biases[key]


class Step(Pass):
    """One token of every row, behind the keys that it has in ``own``; good until ``own`` is full.

    The rows' keys lie behind ``offsets`` (R,) positions; no position exceeds ``most``. What changes from
    step to step is on the device and changes in place, so that a step can be recorded and replayed.
    """

    def __init__(self, own: OwnKeys, parts: Sequence[Part], offsets: Sequence[int], most: int) -> None:
        super().__init__()
        self._biases: dict[Any, Tensor] = {}
        self._own, self._most = own, most
        starts = [min(offset + count, most) for offset, count in zip(offsets, own.counts, strict=True)]
        self.positions = torch.tensor(starts, device=own.device)
        same = min(own.counts) == max(own.counts)
        last = torch.tensor(own.counts[:1] if same else own.counts, device=own.device)
        self._last = last.view(-1, 1, 1, 1)
        self._keys = torch.arange(own.capacity, device=own.device)
        self._places: dict[int, Tensor] = {}
        # Whether a sliding window is felt is asked once for all steps.
        longest = min(max(starts) + own.capacity - max(own.counts), most + 1)
        self.buckets = [Bucket(0, len(starts), 1, list(parts), self.positions.view(-1, 1), longest)]

    def advance(self) -> None:
        """Go on to the next token."""
        self.positions.add_(1).clamp_(max=self._most)
        self._last += 1
        for places in self._places.values():
            places += 1
        self._biases.clear()
        self.buckets[0].forget()

    def keep(self, layer: int, k: Tensor, v: Tensor) -> None:
        heads = k.shape[1]
        if heads not in self._places:
            counts = torch.tensor(self._own.counts, device=k.device).repeat_interleave(heads)
            rows = torch.arange(len(counts), device=k.device)
            self._places[heads] = rows * self._own.capacity + counts
        self._own.append(layer, k, v, self._places[heads])

    def own(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values (R, heads, L, width) so far, L a multiple of ``TILE``."""
        return self._own.keys[layer], self._own.values[layer]

    def own_bias(self, window: int | None) -> Tensor:
        """(R or 1, 1, 1, L): 0 for keys that may be seen, MASKED for the rest."""
        if window not in self._biases:
            back = self._last - self._keys
            seen = (back >= 0) if window is None else (back >= 0) & (back < window)
            self._biases[window] = torch.where(seen, 0.0, MASKED)
        return self._biases[window]


class PagedPass(Pass):
    """Tokens at ``positions`` (N,) that leave keys and values where ``own`` says, and see up to their own
    positions what it and ``shared`` say."""

    def __init__(
        self, attention: PagedAttention, pool: Pool, positions: Tensor, own: Reading,
        shared: Sequence[Reading | None], last: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(last)
        self._attention, self._pool, self.positions, self._own = attention, pool, positions, own
        self._shared = [reading for reading in shared if reading]

    def keep(self, layer: int, k: Tensor, v: Tensor) -> None:
        if layer == self.last:  # else attention does it
            self._attention.keep(self._where(layer, k, v), self._own, k, v, self.positions)

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, softcap: float | None,
        sinks: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """As :func:`soft_reasoning.engines.tree.attend`."""
        out, sums, powers = self._attention.attend(
            self._where(layer, k, v), self._own, self._shared, q, k, v, self.positions, window, softcap
        )
        if sinks is not None:
            lse = sums.log() + powers * math.log(2)
            out *= torch.sigmoid(lse - sinks.float()).unsqueeze(-1)
        return out

    def _where(self, layer: int, k: Tensor, v: Tensor) -> Layer:
        return self._pool.layer(layer, *k.shape[1:], v.shape[2])
