"""What a training shows on standard error: a bar on a terminal, otherwise a line at intervals."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from time import perf_counter

EVERY = 15.0
"""Seconds between two lines without a terminal."""
RECENT = 20
"""Steps whose mean is shown."""


class TrainingProgress:
    """Shows the steps of a training while the context is open, if ``enabled``."""

    def __init__(self, steps: int, *, enabled: bool) -> None:
        self._steps, self._enabled = steps, enabled
        self._bar = None
        self._spoke = perf_counter()

    def __enter__(self) -> TrainingProgress:
        if self._enabled and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                BarColumn(24),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[state]}"),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=self._steps, state="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, step: int, log: Mapping[str, Sequence[float]]) -> None:
        """Show that ``step`` steps are done; ``log`` holds one value per step."""
        due = perf_counter() - self._spoke >= EVERY
        if not self._enabled or (self._bar is None and not due):
            return
        self._spoke = perf_counter()
        means = {
            key: sum(log[key][-RECENT:]) / len(log[key][-RECENT:]) for key in ("cross_entropy", "weight")
        }
        state = f"cross-entropy {means['cross_entropy']:.3f}  weight {means['weight']:.2f}"
        if self._bar is not None:
            self._bar.update(self._task, completed=step, state=state)
        else:
            print(f"{step}/{self._steps} steps  {state}", file=sys.stderr, flush=True)
