"""Running counts of a run, shown on standard error."""

from __future__ import annotations

from time import perf_counter
from typing import TextIO

from soft_reasoning.display import Display
from soft_reasoning.reports.tables import duration, percent
from soft_reasoning.runs.grades import Graded
from soft_reasoning.scheduler import Clock


class Progress:
    """Running counts of a run of ``total`` problems, shown while the context is open.

    With ``enabled = False`` only :meth:`say` prints. Problems finished before a resume count in accuracy and
    coverage, but not in speed and remaining time.
    """

    def __init__(self, total: int, *, enabled: bool = True, stream: TextIO | None = None) -> None:
        self.total = total
        self.done: int = 0
        self._before = 0
        self._graded = self._correct = self._covered = self._tokens = 0
        self._display = Display(total, "problems", enabled=enabled, stream=stream)
        self._start = perf_counter()

    def __enter__(self) -> Progress:
        self._before, self._start = self.done, perf_counter()
        self._display.open(self.done)
        return self

    def __exit__(self, *_: object) -> None:
        self._display.close()

    def count(self, row: Graded) -> None:
        """Count one more finished problem."""
        self.done += 1
        self._tokens += sum(usage.generated_tokens for usage in row.usage.values())
        if row.correct is not None:
            self._graded += 1
            self._correct += row.correct
            self._covered += row.covered()

    def figures(self) -> dict[str, float]:
        """Return running figures by name; shares are those of the problems with a gold answer."""
        found: dict[str, float] = {"problems": self.done, "generated_tokens": self._tokens}
        if self.done:
            found["generated_tokens_per_problem"] = self._tokens / self.done
        if self._graded:
            found |= {"accuracy": self._correct / self._graded, "coverage": self._covered / self._graded}
        return found

    def show(self, clock: Clock) -> None:
        """Redraw the bar, or print a line if the last one is old enough."""
        self._display.show(self.done, lambda: self.state(clock))

    def state(self, clock: Clock) -> str:
        """Describe running accuracy and coverage, speed and remaining time."""
        elapsed = perf_counter() - self._start
        here = self.done - self._before
        parts: list[str] = []
        if self._graded:
            parts.append(f"accuracy {percent(self._correct / self._graded)} %")
            parts.append(f"coverage {percent(self._covered / self._graded)} %")
        parts.append(f"{clock.generated_tokens / max(elapsed, 1e-9):,.0f} tokens/s")
        if here:
            parts.append(f"{duration(elapsed / here * (self.total - self.done))} left")
        return "  ".join(parts)

    def say(self, line: str) -> None:
        """Print one line, above the bar if there is one."""
        self._display.say(line)
