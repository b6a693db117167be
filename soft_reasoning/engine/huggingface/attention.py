"""Attention over a block table: the only place where keys and values are written and read.

The tokens of a pass are packed in one row. Each layer first writes their keys and values to the pool; then
every token attends to the blocks of its sequence. The work is cut into tiles: a block and some tokens that
read it. Tiles of one shape are a batched matrix product, so a block that many sequences share is read once
for all of them. On the CPU a token's result is bitwise independent of the other tokens in the pass: its
products have fixed shapes, and its tiles are summed in the order of their positions, scaled by powers of two
only, which is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AttentionInterface

from soft_reasoning.engine.devices import on_device
from soft_reasoning.engine.huggingface.block_manager import BLOCK
from soft_reasoning.engine.huggingface.tiles import MASKED, Chunk, Piece, split_into_chunks

NAME = "soft_reasoning_blocks"


class KeyValuePool:
    """Keys (blocks, heads, d, BLOCK) and values (blocks, heads, BLOCK, dv) of every layer.

    Keys lie transposed, which makes their product with a few queries faster. A layer is allocated when it
    first writes.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def resized(self, blocks: int) -> KeyValuePool:
        """An empty pool for the same layers. Its blocks are undefined until they are cleared."""
        pool = KeyValuePool(blocks)
        for index, (keys, values) in self._layers.items():
            pool._layers[index] = (
                keys.new_empty(blocks, *keys.shape[1:]),
                values.new_empty(blocks, *values.shape[1:]),
            )
        return pool

    def layer(self, index: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of layer ``index``, shaped to take ``k`` (N, heads, d) and ``v`` (N, heads, dv)."""
        if index not in self._layers:
            keys = k.new_zeros(self.blocks, k.shape[1], k.shape[2], BLOCK)
            values = v.new_zeros(self.blocks, v.shape[1], BLOCK, v.shape[2])
            self._layers[index] = keys, values
        return self._layers[index]

    def clear(self, blocks: list[int]) -> None:
        """Set ``blocks`` to zero, since even masked keys must be finite."""
        for keys, values in self._layers.values():
            index = on_device(blocks, keys.device)
            keys.index_fill_(0, index, 0)
            values.index_fill_(0, index, 0)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in all layers."""
        return sum(x.shape[1:].numel() * x.element_size() for layer in self._layers.values() for x in layer)


class Pass:
    """The tokens of one forward pass: where their keys go, and which tiles they read.

    Args:
        pool: Keys and values of all layers.
        positions: (N,) positions of the tokens, on the CPU.
        written: (block, offset), (M,) each: where the keys of the first M tokens go.
        pieces: Maps a sliding window (None: all earlier positions are seen) to the pieces that tokens read.
        device: The model's.
    """

    def __init__(
        self,
        pool: KeyValuePool,
        positions: Tensor,
        written: tuple[Tensor, Tensor],
        pieces: Callable[[int | None], list[Piece]],
        device: torch.device,
    ) -> None:
        self.pool = pool
        self.written: tuple[Tensor, ...] = tuple(x.to(device, non_blocking=True) for x in written)
        padded = pad(positions, (0, 1))  # the last is the position of padding readers
        self._positions = padded.to(device, non_blocking=True)
        self._pieces = pieces
        self._chunks: dict[int | None, list[Chunk]] = {}  # by window
        self._biases: dict[int | None, list[list[Tensor | None]]] = {}
        self._longest = int(positions.max()) + 1

    @property
    def positions(self) -> Tensor:
        """(N,) positions of the tokens, on the device."""
        return self._positions[:-1]

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float = 1.0,
        window: int | None = None,
        softcap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Attention of the tokens over their sequences' blocks.

        Args:
            q: (N, Hq, d).
            k: (N, Hkv, d) and v: (N, Hkv, dv), of the same tokens; they are written to the pool.
            scale: The factor of the scores.
            window: How many positions a token sees, including its own; None for all.
            softcap: Scores s become softcap * tanh(s / softcap).
            sinks: (Hq,) logits that take weight and add no value.

        Returns:
            (N, Hq, dv).
        """
        keys, values = self._write(layer, k, v)
        if window is not None and window >= self._longest:
            window = None
        return _attend_tiles(self._chunks_for(window), q, keys, values, scale, softcap, sinks)

    def advance(self) -> None:
        """Move to the next position of every token, inside the same blocks."""
        self._positions[:-1] += 1
        self.written[1].add_(1)  # the blocks stay, so only offsets change
        self._longest += 1
        self._biases.clear()

    def _write(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write ``k`` (N, heads, d) and ``v`` (N, heads, dv); return the layer's keys and values."""
        block, offset = self.written
        keys, values = self.pool.layer(layer, k, v)
        keys[block, :, :, offset] = k[: len(block)]
        values[block, :, offset] = v[: len(block)]
        return keys, values

    def _chunks_for(self, window: int | None) -> list[tuple[Chunk, list[Tensor | None]]]:
        """The chunks of the pieces, and their tiles' biases, for all layers with this ``window``."""
        if window not in self._chunks:
            tokens = len(self._positions) - 1
            self._chunks[window] = split_into_chunks(self._pieces(window), tokens, self._positions.device)
        chunks = self._chunks[window]
        if window not in self._biases:
            self._biases[window] = [
                [tiles.bias(self._positions, window) for tiles in chunk.tiles] for chunk in chunks
            ]
        return list(zip(chunks, self._biases[window], strict=True))


current_pass: ContextVar[Pass] = ContextVar("current_pass")
"""The pass that the model computes, whose ``attend`` every layer calls; the model runner sets it."""


def block_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Called by transformers with ``query`` (1, Hq, N, d), ``key`` (1, Hkv, N, d), ``value`` (1, Hkv, N, dv).

    Returns:
        (1, N, Hq, dv), and None for the attention weights.
    """
    if attention_mask is not None:
        raise NotImplementedError("the model passes a custom attention mask")
    window = kwargs.get("sliding_window")
    kinds = getattr(module.config, "layer_types", None)
    if "sliding_window" not in kwargs and kinds and kinds[module.layer_idx] == "sliding_attention":
        window = module.config.sliding_window
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    attend = current_pass.get().attend
    out = attend(module.layer_idx, q, k, v, scale=scale, window=window, softcap=softcap, sinks=s_aux)
    return out.unsqueeze(0), None


AttentionInterface.register(NAME, block_attention)


def _attend_tiles(
    chunks: list[tuple[Chunk, list[Tensor | None]]],
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """(N, Hq, dv): the attention of tokens over a layer's ``keys`` and ``values`` by the tiles in ``chunks``.

    Each tile has its own softmax; the log-sum-exp of its scores is its weight in the sum. In half precision
    scores, softmax and sums are float32 nonetheless: where keys have large biases, as Qwen2's, scores are in
    the hundreds and their differences would be rounded away.
    """
    dtype = q.dtype
    if not _takes_half(q):  # queries are fewer than scores
        q, scale = q.float() * scale, 1.0
    heads, repeat = keys.shape[1], q.shape[1] // keys.shape[1]
    total = _Sum(len(q), q.shape[1], values.shape[3], q.device)
    rows = pad(q, (0, 0, 0, 0, 0, 1)).view(-1, repeat * q.shape[2])  # the last are padding
    for chunk, biases in chunks:
        out = torch.empty(chunk.rows * heads, repeat * values.shape[3], dtype=torch.float32, device=q.device)
        lse = torch.empty(chunk.rows * heads, repeat, dtype=torch.float32, device=q.device)
        end = 0
        for tiles, bias in zip(chunk.tiles, biases, strict=True):
            picked = rows.index_select(0, tiles.queries(heads))
            begin, end = end, end + len(picked)
            k_tiles, v_tiles = (tiles.select(pool).flatten(0, 1) for pool in (keys, values))
            scores = _product(picked.view(len(k_tiles), -1, q.shape[2]), k_tiles)
            if scale != 1:
                scores.mul_(scale)
            if softcap is not None:
                scores = scores.div_(softcap).tanh_().mul_(softcap)
            if bias is not None:
                scores.view(len(bias), heads, bias.shape[2], -1, BLOCK).add_(bias)
            weights = scores.softmax(-1)
            # The largest weight is exp(max - lse), which spares a second pass of exp over the scores.
            shape = scores.shape[:2]
            torch.sub(scores.amax(-1), weights.amax(-1).log_(), out=lse[begin:end].view(shape))
            sums = out[begin:end].view(*shape, values.shape[3])
            _product(weights, v_tiles, out=sums)
        order = chunk.order(heads)
        shape = len(chunk.tokens), heads * repeat
        total.add(
            chunk.tokens,
            out.index_select(0, order).view(*shape, -1),
            lse.index_select(0, order).view(shape),
        )
    if sinks is not None:
        total.add(torch.arange(len(q), device=q.device), None, sinks.float().repeat(len(q), 1))
    return total.mean().to(dtype)


def _product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """The float32 products of ``a`` (U, n, m) and ``b`` (U, m, p), which may be in half precision."""
    if _takes_half(b):
        return torch.bmm(a.to(b.dtype), b, out_dtype=torch.float32, out=out)
    return torch.bmm(a.float(), b.float(), out=out)


def _takes_half(x: Tensor) -> bool:
    """Whether products of ``x`` can be float32 without copies of it in float32."""
    return x.device.type == "cuda" and x.dtype != torch.float32


class _Sum:
    """Sums of N tokens' tiles, weighted by exp(lse).

    Weights are stored as fraction * 2**(exponent - top) with whole exponents, ``top`` the largest so far. So
    rescaling is exact, and a sum depends only on its terms and their order, not on how they were batched.
    """

    def __init__(self, tokens: int, heads: int, width: int, device: torch.device) -> None:
        self._top = torch.full((tokens, heads), MASKED, dtype=torch.float32, device=device)
        self._weight = torch.zeros(tokens, heads, dtype=torch.float32, device=device)
        self._value = torch.zeros(tokens, heads, width, dtype=torch.float32, device=device)

    def add(self, tokens: Tensor, out: Tensor | None, lse: Tensor) -> None:
        """Add ``out`` (P, heads, width) with log-weights ``lse`` (P, heads) to ``tokens`` (P,)."""
        power = lse * math.log2(math.e)
        whole = power.ceil()
        index = tokens[:, None].expand(-1, lse.shape[1])
        top = self._top.scatter_reduce(0, index, whole, "amax")
        shrink = torch.exp2(self._top - top)
        self._top = top
        # Not exp2: but for whole numbers, its last bit may depend on where in a tensor a number lies.
        fraction = torch.exp((power - whole) * math.log(2))
        weight = fraction * torch.exp2(whole - top.index_select(0, tokens))
        self._weight.mul_(shrink).index_add_(0, tokens, weight)
        self._value.mul_(shrink.unsqueeze(-1))
        if out is not None:
            self._value.index_add_(0, tokens, out.mul_(weight.unsqueeze(-1)))

    def mean(self) -> Tensor:
        """(N, heads, width); zero for tokens without tiles."""
        return self._value / self._weight.clamp_min(1e-37).unsqueeze(-1)
