"""Attention over pages on the CPU, compiled from ``attention.c`` by the machine's C compiler."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engines.pages import PAGE, SLAB, UNBOUNDED, Layer, Reading

log = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("attention.c")
FLAGS = (
    f"-DPAGE={PAGE}", f"-DSLAB={SLAB}", "-O3", "-fno-math-errno", "-ffp-contract=fast", "-shared", "-fPIC",
)  # fmt: skip
MACHINE = (("-march=native", "-fopenmp"), ("-march=native",), ("-mcpu=native",))
"""What is asked of the compiler beside, the first that it takes: this CPU's instructions, without which torch
is faster, and several threads."""


class PagedAttention:
    """The functions of the compiled library ``path`` on float32 tensors on the CPU.

    Positions are those of a pass's N tokens, (N,) int64.
    """

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.keep.restype = None

    def keep(self, layer: Layer, reading: Reading, keys: Tensor, values: Tensor, positions: Tensor) -> None:
        """Write ``keys`` (N, heads, d) and ``values`` (N, heads, dv) to the pages that the tokens read."""
        self._call("keep", layer, reading, keys.contiguous(), values.contiguous(), positions)

    def attend(
        self, layer: Layer, own: Reading, shared: Sequence[Reading], q: Tensor, keys: Tensor, values: Tensor,
        positions: Tensor, window: int | None, softcap: float | None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Keep ``keys`` and ``values`` in ``own``, as above; output (N, Hq, dv) and the softmax's denominator
        sums * 2 ** powers, (N, Hq) each, of queries ``q`` (N, Hq, d), scaled already, over all that the
        tokens read there and in ``shared`` up to their positions, the last ``window`` of it, scores capped
        by ``softcap``. RuntimeError where memory runs out."""
        tokens, heads, _ = q.shape
        out = q.new_zeros(tokens, heads, layer.value_width)
        sums, powers = q.new_zeros(tokens, heads), q.new_zeros(tokens, heads, dtype=torch.int32)
        q, keys, values = q.contiguous(), keys.contiguous(), values.contiguous()
        seen = UNBOUNDED if window is None else window
        options = q, positions, heads // layer.heads, seen, softcap or 0.0, out, sums, powers
        for reading, *new in ((own, keys, values), *((reading, None, None) for reading in shared)):
            if self._call("attend", layer, reading, *new, *options):
                raise RuntimeError("not enough memory for the scores of a pass")
        return out, sums, powers

    def _call(
        self, name: str, layer: Layer, reading: Reading, *arguments: Tensor | int | float | None
    ) -> int:
        """Tensors go as addresses, numbers as int64 and double; the number of threads comes last."""
        given: list[Any] = [ctypes.byref(layer), ctypes.byref(reading.layout)]
        for x in (*arguments, torch.get_num_threads()):
            if isinstance(x, Tensor):
                assert x.is_contiguous() and x.dtype in (torch.float32, torch.int64, torch.int32), x.dtype
                given.append(ctypes.c_void_p(x.data_ptr()))
            elif x is None:
                given.append(None)
            else:
                given.append(ctypes.c_double(x) if isinstance(x, float) else ctypes.c_int64(x))
        return getattr(self._library, name)(*given)


def compiler() -> str | None:
    """Where the C compiler is: ``CC``, else cc, gcc or clang."""
    return next(filter(None, map(shutil.which, (os.environ.get("CC") or "cc", "gcc", "clang"))), None)


@cache
def paged_attention() -> PagedAttention | None:
    """The compiled functions; ``None`` where they cannot be had, which is told once."""
    cc = compiler()
    if cc is None:
        log.info("no C compiler is found, so the CPU attends by torch, which is slower")
        return None
    told = ""
    for machine in MACHINE:
        try:
            return _compiled([cc, *FLAGS, *machine])
        except (OSError, subprocess.CalledProcessError) as error:
            told = getattr(error, "stderr", None) or str(error)
    log.warning("the CPU attends by torch, which is slower: %s fails: %s", cc, told)
    return None


def _compiled(command: Sequence[str]) -> PagedAttention:
    """What ``command`` makes of the source on this CPU, kept in the user's cache where there is one."""
    source = SOURCE.read_text()
    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True).stdout
    made_of = hashlib.sha256("\0".join([source, *command, version, _cpu()]).encode()).hexdigest()
    name = f"attention-{made_of[:16]}.so"
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "soft_reasoning"
        folder.mkdir(parents=True, exist_ok=True)
        return PagedAttention(_built(command, folder / name))
    except (OSError, RuntimeError):  # no home, or one that this user may not write to or load programs from
        with tempfile.TemporaryDirectory() as some:
            return PagedAttention(_built(command, Path(some) / name))


def _built(command: Sequence[str], target: Path) -> Path:
    if not target.exists():
        # Several processes may do so at once: each makes its own, and the last to be done stays.
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / target.name
            subprocess.run(
                [*command, str(SOURCE), "-o", str(made), "-lm"], capture_output=True, text=True, check=True
            )
            made.replace(target)
    return target


def _cpu() -> str:
    """What instructions this machine's CPU has, as the system tells."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    flags = [line for line in lines if line.startswith(("flags", "Features"))]
    return flags[0] if flags else platform.processor() or platform.machine()
