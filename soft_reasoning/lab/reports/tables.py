"""Tables as text, Markdown, CSV and LaTeX, and formats of numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from tabulate import SEPARATING_LINE, tabulate

from soft_reasoning.lab.runs.files import write_text

MISSING = "-"
ERROR = " ± "
ESTIMATE = re.compile(r"^(\S+?)(?: ± (\S+))?(?: \((\S+) to (\S+)\))?$")
PARTS = "", " ±", " low", " high"
"""The parts of :func:`estimate`, and what the names of their columns end in."""
BOLD = "\ue000", "\ue001"
"""Around bold cells in LaTeX until everything is escaped."""


@dataclass(frozen=True)
class Table:
    """Rows with one cell per column; the first ``labels`` columns are text, the rest numbers.

    A line precedes the rows in ``rules``. The cells (row, column) in ``bold`` are bold. A page shows
    ``title`` and ``note``.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1
    rules: Collection[int] = ()
    bold: Collection[tuple[int, int]] = ()
    title: str = ""
    note: str = ""

    @classmethod
    def from_rows(
        cls,
        head: str,
        rows: Iterable[tuple[str, Any]],
        columns: Mapping[str, Callable[[Any], str]],
        title: str = "",
        note: str = "",
    ) -> Table:
        """A table with a row for each (label, value); the functions in ``columns`` format the value."""
        cells = [[label, *(format_cell(row) for format_cell in columns.values())] for label, row in rows]
        return cls([head, *columns], cells, title=title, note=note)

    def text(self) -> str:
        """Format for a terminal: labels on the left, numbers on the right."""
        # As a row, the header is not padded; without one there are lines above and below.
        rows = [self.columns, SEPARATING_LINE, *self.rows]
        return "\n".join(line.rstrip() for line in self._tabulated("simple", rows, ()).splitlines()[1:-1])

    def markdown(self) -> str:
        """Format as Markdown, numbers aligned to the right."""
        rows = [[cell.replace("|", "\\|") for cell in row] for row in self._marked("**", "**")]
        return self._tabulated("pipe", rows, self.columns)

    def csv(self) -> str:
        """Format as comma-separated values: deviations and intervals in columns of their own, no commas."""
        cells: Any = pd.DataFrame([*map(list, self.rows)], columns=range(len(self.columns)), dtype=object)
        parts: list[Any] = []
        for j, name in enumerate(self.columns):
            texts = cells[j].rename(name)
            if j >= self.labels:
                texts = texts.replace(MISSING, "").str.replace(r"(?<=\d),(?=\d{3})", "", regex=True)
                split = texts.str.extract(ESTIMATE).set_axis([f"{name}{part}" for part in PARTS], axis=1)
                texts = split.fillna({name: texts}).dropna(axis=1, how="all")
            parts.append(texts)
        return pd.concat(parts, axis=1).to_csv(index=False, lineterminator="\n")

    def tex(self) -> str:
        """Format as a LaTeX ``tabular`` for booktabs, with errors as subscripts as in the paper."""
        text = self._tabulated("latex_booktabs", self._marked(*BOLD), self.columns)
        for mark, command in zip(BOLD, (r"\textbf{", "}"), strict=True):
            text = text.replace(mark, command)
        lines = re.sub(rf"{ERROR}([^\s&}}]+)", r"$_{\\pm\1}$", text).splitlines()
        for rule in sorted(self.rules, reverse=True):
            lines.insert(4 + rule, r"\midrule")
        return "\n".join([*lines, ""])

    def _marked(self, before: str, after: str) -> list[list[str]]:
        """The rows with marks around bold cells."""
        return [
            [f"{before}{cell}{after}" if (i, j) in self.bold else cell for j, cell in enumerate(row)]
            for i, row in enumerate(self.rows)
        ]

    def _tabulated(self, form: str, rows: Sequence[Iterable[str]], head: Sequence[str]) -> str:
        align = ["left" if j < self.labels else "right" for j in range(len(self.columns))] if rows else None
        return tabulate(rows, head, form, disable_numparse=True, colalign=align, preserve_whitespace=True)


def save(table: Table, folder: Path, name: str) -> None:
    """Write ``table`` into ``folder`` as ``name.csv`` and ``name.tex``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{name}.csv", table.csv())
    write_text(folder / f"{name}.tex", table.tex())


def percent(value: float | None, digits: int = 1) -> str:
    """Format a share as percent."""
    return MISSING if value is None or math.isnan(value) else f"{100 * value:.{digits}f}"


def number(value: float | None, digits: int = 2) -> str:
    """Format a number for a table."""
    return MISSING if value is None or math.isnan(value) else f"{value:.{digits}f}"


def count(value: float | None) -> str:
    """Format a whole number: 12,345."""
    return MISSING if value is None or math.isnan(value) else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """Format seconds: 0.012 s, 12.3 s, 4 min 05 s or 2 h 03 min."""
    if seconds is None or math.isnan(seconds):
        return MISSING
    if seconds < 60:
        return f"{seconds:.2g} s" if 0 < seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def memory(size: float | None) -> str:
    """Format bytes: 0.1 MiB, 23.4 MiB or 1.5 GiB."""
    if size is None or math.isnan(size):
        return MISSING
    return f"{size / 2**20:,.1f} MiB" if size < 2**30 else f"{size / 2**30:,.1f} GiB"


def estimate(
    share: float | None, low: float = math.nan, high: float = math.nan, std: float = math.nan
) -> str:
    """Format a share in percent: 60.0 ± 2.1 (38.7 to 78.1); a NaN is left out.

    Args:
        share: The share, or its mean over seeds.
        low: The lower end of its 95 % interval.
        high: The upper end.
        std: Its standard deviation over seeds.
    """
    deviation = "" if math.isnan(std) else f"{ERROR}{percent(std)}"
    interval = "" if math.isnan(low) else f" ({percent(low)} to {percent(high)})"
    return f"{percent(share)}{deviation}{interval}"
