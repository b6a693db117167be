"""A decode step recorded as a CUDA graph and replayed, which spares launching its kernels one by one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor


class Recorded:
    """``run`` (R, D) -> (R, V), recorded for inputs of the shape and on the device of ``example``.

    ``run`` must have run once before, move its own state on (in place, on the device) and never wait for
    the device; each call returns the same tensor, which the next call overwrites. Raises RuntimeError for
    work that cannot be recorded.
    """

    def __init__(self, run: Callable[[Tensor], Tensor], example: Tensor) -> None:
        self._input = example.clone()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(example.device):
            stream = torch.cuda.current_stream()
            try:
                with torch.cuda.graph(self._graph, stream=_stream(example.device)):
                    self._output = run(self._input)
            finally:
                torch.cuda.set_stream(stream)  # which ``graph`` leaves undone where the recording fails

    def __call__(self, x: Tensor) -> Tensor:
        self._input.copy_(x)
        self._graph.replay()
        return self._output


@cache
def _stream(device: torch.device) -> Any:
    """The stream that ``device`` records on; torch's own is that of the first device used."""
    return torch.cuda.Stream(device)
