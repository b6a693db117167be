"""The attention of decode steps on the CPU, compiled from ``attention.c`` by the machine's C compiler."""

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

import torch
from torch import Tensor

from soft_reasoning.engines.kv import TILE, Part

log = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("attention.c")
FLAGS = (f"-DTILE={TILE}", "-O3", "-fno-math-errno", "-ffp-contract=fast", "-shared", "-fPIC")
MACHINE = (("-march=native", "-fopenmp"), ("-march=native",), ("-mcpu=native",))
"""What is asked of the compiler beside, the first that it takes: this CPU's instructions, without which torch
is faster, and several threads."""
UNBOUNDED = 2**62


class StepAttention:
    """The functions of the compiled library ``path`` on tensors: float32, dense, on the CPU."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def __call__(
        self, q: Tensor, keys: Tensor, values: Tensor, counts: Tensor, positions: Tensor,
        parts: Sequence[Part], layer: int, window: int | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Output (R * heads, M, dv) and log-sum-exp (R * heads, M, 1) of one token's queries ``q``
        (R * heads, M, d), scaled already, M of which share a key head.

        ``keys`` (R, heads, L, d) and ``values`` (R, heads, L, dv): the rows' own, of which ``counts`` (R,)
        are there. The rows are at ``positions`` (R,), see ``window`` positions back, and read ``parts`` of
        tiled blocks. RuntimeError where memory runs out.
        """
        rows, heads, room, width = keys.shape
        repeat, value_width, q = q.shape[1], values.shape[-1], q.contiguous()
        out, lse = q.new_empty(len(q), repeat, value_width), q.new_empty(len(q), repeat, 1)
        shape = (heads, repeat, width, value_width)
        seen, threads = UNBOUNDED if window is None else window, torch.get_num_threads()
        self._call("attend_own", q, keys, values, counts, rows, *shape, room, seen, out, lse, threads)
        for part in parts:
            assert part.block.tiled
            k, v = part.block.keys[layer], part.block.values[layer]
            self._call(
                "attend_part", q, k, v, *part.readers, positions, part.count, part.width, *shape,
                v.shape[2], seen, out, lse, threads,
            )  # fmt: skip
        return out, lse

    def _call(self, name: str, *arguments: Tensor | int) -> None:
        """Tensors go as addresses and numbers as int64, the last one (threads) as int."""
        *given, threads = arguments
        for x in given:
            if isinstance(x, Tensor):
                assert x.is_contiguous() and x.dtype in (torch.float32, torch.int64), (x.dtype, x.stride())
        converted = [
            ctypes.c_void_p(x.data_ptr()) if isinstance(x, Tensor) else ctypes.c_int64(x) for x in given
        ]
        if getattr(self._library, name)(*converted, ctypes.c_int(threads)):
            raise RuntimeError("not enough memory for the scores of a decode step")


def compiler() -> str | None:
    """Where the C compiler is: ``CC``, else cc, gcc or clang."""
    return next(filter(None, map(shutil.which, (os.environ.get("CC") or "cc", "gcc", "clang"))), None)


@cache
def step_attention() -> StepAttention | None:
    """The compiled functions; ``None`` where they cannot be had, which is told once."""
    cc = compiler()
    if cc is None:
        log.info("no C compiler is found, so decode steps on the CPU attend by torch, which is slower")
        return None
    told = ""
    for machine in MACHINE:
        try:
            return _compiled([cc, *FLAGS, *machine])
        except (OSError, subprocess.CalledProcessError) as error:
            told = getattr(error, "stderr", None) or str(error)
    log.warning("decode steps on the CPU attend by torch, which is slower: %s fails: %s", cc, told)
    return None


def _compiled(command: Sequence[str]) -> StepAttention:
    """What ``command`` makes of the source on this CPU, kept in the user's cache where there is one."""
    source = SOURCE.read_text()
    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True).stdout
    made_of = hashlib.sha256("\0".join([source, *command, version, _cpu()]).encode()).hexdigest()
    name = f"attention-{made_of[:16]}.so"
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "soft_reasoning"
        folder.mkdir(parents=True, exist_ok=True)
        return StepAttention(_built(command, folder / name))
    except (OSError, RuntimeError):  # no home, or one that this user may not write to or load programs from
        with tempfile.TemporaryDirectory() as some:
            return StepAttention(_built(command, Path(some) / name))


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
