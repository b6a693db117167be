"""Progress on standard error: a bar on a terminal, otherwise a line at intervals.

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
        self._task: Any = None
        self._last_line = perf_counter()

    def open(self, done: int = 0) -> None:
        """Begin to show progress, with ``done`` steps done."""
        self._last_line = perf_counter()
        if self._enabled and self._stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (BarColumn(24), MofNCompleteColumn(), TextColumn("{task.fields[state]}"))
            self._bar = Progress(*columns, console=Console(file=self._stream), transient=True)
            self._task = self._bar.add_task("", total=self._total, completed=done, state="")
            self._bar.start()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def show(self, done: int, state: Callable[[], str]) -> None:
        """Redraw the bar, or print a line if the last one is old enough; ``state()`` describes the rest."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, state=state())
        elif self._enabled and perf_counter() - self._last_line >= EVERY:
            self._last_line = perf_counter()
            self.say(f"{done}/{self._total} {self._unit}  {state()}")

    def say(self, line: str) -> None:
        """Print one line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=self._stream, flush=True)
