"""Decode steps over buffers that never move, which a GPU replays as CUDA graphs.

A step of R sequences is computed with the next larger of ``SIZES`` rows. The other rows read and write a
spare block, which no sequence owns. All that changes from step to step lies in two tensors on the device: the
newest tokens with their positions, and the block table. So one graph serves every batch of its size, whatever
sequences are in it.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engine.devices import is_out_of_memory
from soft_reasoning.engine.huggingface.attention import KeyValuePool
from soft_reasoning.engine.huggingface.block_manager import BLOCK
from soft_reasoning.engine.huggingface.paged_attention import PART, attend_blocks
from soft_reasoning.engine.huggingface.sequence import Sequence

log: logging.Logger = logging.getLogger(__name__)

SIZES = (1, 2, 4, 8, *range(16, 257, 16))
"""Rows of a step."""
WIDER = 4
"""Factor between the widths of the block table: few widths make few graphs."""
MOST_BLOCKS = 2**16
"""Rows times width of a block table: the kernel keeps a sum in memory for every ``PART`` of these blocks."""
CAPTURING: threading.Lock = threading.Lock()
"""Only one graph of a process may be captured at a time."""


class DecodePass:
    """Stands for a :class:`Pass` of one new token per sequence.

    Args:
        pool: Keys and values of all layers.
        positions: (R,) positions of the tokens.
        table: (R, W) int32 block table.
    """

    def __init__(self, pool: KeyValuePool, positions: Tensor, table: Tensor) -> None:
        self.positions: Tensor = positions
        self._pool, self._table = pool, table
        self._block = table.gather(1, (positions // BLOCK)[:, None]).squeeze(1).long()
        self._offset = positions % BLOCK

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        """(R, Hq, dv), as :meth:`Pass.attend` computes it."""
        keys, values = self._pool.layer(layer, k, v)
        keys[self._block, :, :, self._offset] = k
        values[self._block, :, self._offset] = v
        return attend_blocks(q, keys, values, self._table, self.positions, **options)


class DecodeGraphs:
    """Computes decode steps by the graph of their shape, which is captured when it is first needed.

    Args:
        forward: Maps a pass and its token ids (R,) to the logits (R, V) of the next tokens.
        device: The model's.

    Attributes:
        most_rows: Rows of the largest step.
    """

    def __init__(self, forward: Callable[[DecodePass, Tensor], Tensor], device: torch.device) -> None:
        self._forward = forward
        self.most_rows: int = SIZES[-1]
        self._captures = device.type == "cuda"
        self._inputs = torch.zeros(
            2 * SIZES[-1], dtype=torch.long, device=device
        )  # token ids, then positions
        self._table = torch.zeros(MOST_BLOCKS, dtype=torch.int32, device=device)
        self._steps: dict[tuple[int, int], Callable[[], Tensor]] = {}

    def use(self, pool: KeyValuePool) -> None:
        """Drop all graphs, and compute with the keys and values of ``pool``, whose last block is spare."""
        self._pool = pool
        self._steps.clear()
        self._memory = torch.cuda.graph_pool_handle() if self._captures else None
        self._host_table = torch.zeros(SIZES[-1], 0, dtype=torch.int32)
        self._sent = 0, 0  # shape of the table on the device
        self._rows: list[tuple[Sequence | None, int]] = [(None, 0)] * SIZES[-1]  # whose blocks, and how many

    def shape(self, sequences: list[Sequence]) -> tuple[int, int] | None:
        """Rows and width of the block table of a step of ``sequences``; None if the buffers are too small."""
        size = next((size for size in SIZES if size >= len(sequences)), MOST_BLOCKS)
        width, most = PART, max(len(sequence.block_table) for sequence in sequences)
        while width < most:
            width *= WIDER
        return (size, width) if size * width <= MOST_BLOCKS else None

    def step(self, sequences: list[Sequence], shape: tuple[int, int]) -> Tensor:
        """Logits (R, V) after the newest tokens of ``sequences``, valid until the next step."""
        self._send(sequences, *shape)
        if shape not in self._steps:
            self._steps[shape] = self._capture(partial(self._run, *shape))
        return self._steps[shape]()[: len(sequences)]

    def _send(self, sequences: list[Sequence], size: int, width: int) -> None:
        """Bring the newest tokens, their positions and, if it changed, the block table to the device."""
        filling = [0] * (size - len(sequences))
        ids, positions = zip(*((sequence.ids[-1], sequence.position) for sequence in sequences), strict=True)
        inputs = torch.tensor([*ids, *filling, *positions, *filling])
        self._inputs[: 2 * size].copy_(inputs, non_blocking=True)
        if (short := width - self._host_table.shape[1]) > 0:
            self._host_table = torch.nn.functional.pad(self._host_table, (0, short))
        rows = [(sequence, len(sequence.block_table)) for sequence in sequences] + [(None, 1)] * len(filling)
        changed = [i for i, row in enumerate(rows) if row != self._rows[i]]
        for i in changed:
            sequence, count = self._rows[i] = rows[i]
            blocks = [self._pool.blocks - 1] if sequence is None else sequence.block_table
            self._host_table[i, :count] = torch.tensor(blocks)
        if changed or self._sent != (size, width):
            self._sent = size, width
            self._table[: size * width].copy_(self._host_table[:size, :width].flatten(), non_blocking=True)

    def _run(self, size: int, width: int) -> Tensor:
        ids, positions = self._inputs[: 2 * size].view(2, size)
        table = self._table[: size * width].view(size, width)
        return self._forward(DecodePass(self._pool, positions, table), ids)

    def _capture(self, run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Return what replays ``run`` as a CUDA graph, or ``run`` itself where it cannot be captured."""
        if not self._captures:
            return run
        run()  # compiles kernels and lets libraries choose their algorithms
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        capture = torch.cuda.graph(
            graph,
            pool=self._memory,
            stream=torch.cuda.Stream(self._table.device),
            capture_error_mode="thread_local",  # other threads may use the device, but may not capture
        )
        try:
            with CAPTURING, capture:
                logits = run()
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            self._captures = False
            log.warning(
                "decode steps run without CUDA graphs, which takes longer: %s",
                " ".join(str(error).split())[:300],
            )
            return run
        finally:
            torch.cuda.set_stream(stream)  # which a failing capture leaves undone

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay


def fuse_norms(model: Any) -> int:
    """Compute RMS norms of ``model`` in one kernel where this gives the same numbers; return how many."""
    count = 0
    for module in model.modules():
        weight = getattr(module, "weight", None)
        eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
        named = (
            type(module).__name__.endswith("RMSNorm")
            and len(inspect.signature(module.forward).parameters) == 1
        )
        if not named or weight is None or eps is None:
            continue
        fused = partial(torch.rms_norm, normalized_shape=tuple(weight.shape), weight=weight, eps=eps)
        scales = torch.tensor([[3.0], [eps**0.5]], device=weight.device)  # of the second eps is a half
        x = (torch.linspace(-1, 1, weight.numel(), device=weight.device) * scales).to(weight.dtype)
        if torch.allclose(fused(x), module(x), rtol=2 * torch.finfo(weight.dtype).eps, atol=1e-6):
            module.forward, count = fused, count + 1
    return count
