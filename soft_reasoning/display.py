"""Progress on standard error: a bar on a terminal or in a notebook, otherwise a line at intervals.

Standard output holds only final tables.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any, TextIO

EVERY = 15.0
"""Seconds between two lines without a terminal."""


class Display:
    """Shows how many of ``total`` steps are done while the context is open; nothing unless ``enabled``.

    Args:
        total: Number of steps.
        unit: What a step is called in lines, such as "problems".
        enabled: Whether to show progress; :meth:`say` prints in any case.
        stream: Where to write; standard error by default.
    """

    def __init__(self, total: int, unit: str, *, enabled: bool = True, stream: TextIO | None = None) -> None:
        self._total, self._unit, self._enabled = total, unit, enabled
        self._stream = sys.stderr if stream is None else stream
        self._bar: Any = None
        self._last_line = perf_counter()

    def open(self, done: int = 0) -> None:
        """Begin to show progress, with ``done`` steps done."""
        self._last_line = perf_counter()
        if self._enabled and (self._stream.isatty() or "ipykernel" in sys.modules):
            from tqdm.auto import tqdm

            shape = "{bar:24} {n_fmt}/{total_fmt} {postfix}"
            self._bar = tqdm(
                total=self._total, initial=done, file=self._stream, leave=False, bar_format=shape,
                dynamic_ncols=True,
            )  # fmt: skip

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def show(self, done: int, state: Callable[[], str]) -> None:
        """Redraw the bar, or print a line if the last one is old enough; ``state()`` describes the rest."""
        if self._bar is not None:
            self._bar.n = done
            self._bar.set_postfix_str(state())
        elif self._enabled and perf_counter() - self._last_line >= EVERY:
            self._last_line = perf_counter()
            self.say(f"{done}/{self._total} {self._unit}  {state()}")

    def say(self, line: str) -> None:
        """Print one line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.write(line, file=self._stream)
        else:
            print(line, file=self._stream, flush=True)
