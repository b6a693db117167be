"""Progress on standard error: tqdm's bar on a terminal or in a notebook, otherwise its text at intervals."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

REDRAW, EVERY = 0.2, 15.0
"""Seconds between two states of a bar, and between two lines without a terminal."""

UNREAD = 20
"""A warning is printed if none of this many first problems has a readable answer."""


class Progress:
    """Running counts of a run of ``total`` problems, shown while the context is open.

    With ``enabled = False`` only :meth:`say` prints. Problems finished before a resume, and replayed tokens,
    are not part of the speed. Accuracy is not shown before the end, since easy problems end first. ``unit``
    names what ``done`` and ``total`` count. ``stream`` is standard error by default.
    """

    def __init__(
        self, total: int, *, enabled: bool = True, unit: str = "problem", stream: TextIO | None = None
    ) -> None:
        self.total: int = total
        self.done: int = 0
        self.tokens: int = 0
        self._free = 0  # tokens that were replayed, or generated before the context was opened
        self._read = self._graded = self._correct = 0
        self._written: Sequence[int] = ()  # tokens of each unfinished problem
        self._enabled, self._unit, self._stream = enabled, unit, sys.stderr if stream is None else stream
        self._live = self._stream.isatty() or "ipykernel" in sys.modules
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if self._enabled:
            from tqdm.auto import tqdm

            self._free, unsized = self.tokens, False
            if self._stream.isatty():
                unsized = not os.get_terminal_size(self._stream.fileno()).columns
            self._bar = tqdm(
                total=self.total,
                initial=self.done,
                unit=self._unit,
                file=self._stream if self._live else io.StringIO(),
                mininterval=REDRAW if self._live else EVERY,
                miniters=0,
                leave=False,
                disable=False,  # whatever the environment says of the bars of libraries
                smoothing=0,  # over the whole run: most lines are drawn between two problems
                dynamic_ncols=not unsized,
                ncols=120 if unsized else None,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def count(self, tokens: int, *, read: bool, correct: bool | None, replayed: int = 0) -> None:
        """Count a finished problem; warn if the first ``UNREAD`` problems have no readable answer.

        Args:
            tokens: Its generated tokens.
            read: Whether its answer could be read.
            correct: Whether its answer is correct; None without a reference answer.
            replayed: Those of the tokens that came from a store of completions.
        """
        self.done += 1
        self.tokens += tokens
        self._free += replayed
        self._read += read
        if correct is not None:
            self._graded += 1
            self._correct += correct
        if self.done == UNREAD and not self._read:
            self.say(
                f"soft_reasoning: no answer could be read in the first {UNREAD} problems. Look at the "
                "candidates in report.html. The model may need another prompt (prompt=) or more tokens "
                "(max_new_tokens=)."
            )

    def work(self, written: Sequence[int]) -> None:
        """Show the tokens that each unfinished problem has generated so far, without replayed ones."""
        self._written = written
        self.show()

    def show(self) -> None:
        """Redraw the bar, or print a line, if the last one is old enough."""
        if self._bar is None:
            return
        graded = [f"{self._correct} correct", f"{self._graded - self._correct} wrong"] if self._graded else []
        tokens = self.tokens - self._free + sum(self._written)
        speed = tokens / max(self._bar.format_dict["elapsed"], 1e-9)
        live = min(len(self._written), self.total - self.done)  # one that has just ended is among the written
        parts = [*graded, f"{live} in progress", f"{tokens:,} tokens", f"{speed:,.0f} tokens/s"]
        self._bar.set_postfix_str(", ".join(parts), refresh=False)
        if self._bar.update(self.done - self._bar.n) and not self._live:
            self.say(str(self._bar))

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is a bar."""
        if self._bar is not None and self._live:
            self._bar.write(line, file=self._stream)
        else:
            print(line, file=self._stream, flush=True)
