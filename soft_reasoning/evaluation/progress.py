"""What a run shows while it works: a bar on a terminal, otherwise a line at intervals.

All of it goes to standard error, so that standard output holds only the final table.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TextIO

from soft_reasoning.analysis.tables import duration, percent
from soft_reasoning.evaluation.metrics import Graded
from soft_reasoning.scheduler import Clock

EVERY = 15.0
"""Seconds between two lines without a terminal."""


class Progress:
    """Running counts of a run of ``total`` problems, shown while the context is open.

    With ``enabled = False`` only :meth:`say` prints. Problems finished before a resume count in accuracy
    and coverage, but not in speed and remaining time.
    """

    def __init__(self, total: int, *, enabled: bool = True, stream: TextIO | None = None) -> None:
        self.total = total
        self.done = self._before = 0
        self._graded = self._correct = self._covered = 0
        self._enabled = enabled
        self._stream = sys.stderr if stream is None else stream
        self._bar = None
        self._start = self._spoke = perf_counter()

    def __enter__(self) -> Progress:
        self._before = self.done
        self._start = self._spoke = perf_counter()
        if self._enabled and self._stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bar

            columns = (BarColumn(24), MofNCompleteColumn(), TextColumn("{task.fields[state]}"))
            self._bar = Bar(*columns, console=Console(file=self._stream), transient=True)
            self._task = self._bar.add_task("", total=self.total, completed=self.done, state="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def count(self, row: Graded) -> None:
        """Count one more finished problem."""
        self.done += 1
        if row.correct is not None:
            self._graded += 1
            self._correct += row.correct
            self._covered += row.covered()

    def show(self, clock: Clock) -> None:
        """Redraw the bar, or print a line if the last one is old enough."""
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, state=self.state(clock))
        elif self._enabled and perf_counter() - self._spoke >= EVERY:
            self._spoke = perf_counter()
            self.say(f"{self.done}/{self.total} problems  {self.state(clock)}")

    def state(self, clock: Clock) -> str:
        """Describe running accuracy and coverage, speed and remaining time."""
        elapsed = perf_counter() - self._start
        here = self.done - self._before
        parts = []
        if self._graded:
            parts.append(f"accuracy {percent(self._correct / self._graded)} %")
            parts.append(f"coverage {percent(self._covered / self._graded)} %")
        parts.append(f"{clock.generated_tokens / max(elapsed, 1e-9):,.0f} tokens/s")
        if here:
            parts.append(f"{duration(elapsed / here * (self.total - self.done))} left")
        return "  ".join(parts)

    def say(self, line: str) -> None:
        """Print one line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=self._stream, flush=True)
