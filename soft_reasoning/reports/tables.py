"""Tables as text, Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soft_reasoning.runs.files import write_text
from soft_reasoning.runs.records import duration as seconds_in_words

MISSING = "-"
ERROR = " ± "
TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$", "×": r"$\times$",
}  # fmt: skip
"""What LaTeX reads otherwise, and how it is written."""


@dataclass(frozen=True)
class Table:
    """Rows with one cell per column; the first ``labels`` columns are text, the rest numbers.

    A line precedes the rows in ``rules``. The cells (row, column) in ``bold`` are bold.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1
    rules: Collection[int] = ()
    bold: Collection[tuple[int, int]] = ()

    def text(self) -> str:
        """Format for a terminal: labels on the left, numbers on the right."""
        widths = [max(map(len, cells)) for cells in zip(self.columns, *self.rows, strict=True)]

        def line(cells: Sequence[str]) -> str:
            padded = [
                cell.ljust(width) if i < self.labels else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ]
            return "  ".join(padded).rstrip()

        rule = "  ".join("-" * width for width in widths)
        lines = [line(self.columns), rule]
        for i, row in enumerate(self.rows):
            lines += [rule, line(row)] if i in self.rules else [line(row)]
        return "\n".join(lines)

    def markdown(self) -> str:
        """Format as Markdown, numbers aligned to the right."""
        marks = ["---" if i < self.labels else "---:" for i in range(len(self.columns))]
        rows = [
            [f"**{cell}**" if (i, j) in self.bold else cell for j, cell in enumerate(row)]
            for i, row in enumerate(self.rows)
        ]
        lines = [[cell.replace("|", "\\|") for cell in line] for line in (self.columns, marks, *rows)]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def csv(self) -> str:
        """Format as comma-separated values: errors in columns of their own, numbers without commas."""
        wide = [
            j >= self.labels and any(ERROR in row[j] for row in self.rows) for j in range(len(self.columns))
        ]
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        names = [[name, f"{name} ±"] if wide[j] else [name] for j, name in enumerate(self.columns)]
        writer.writerow([_plain(name) for pair in names for name in pair])
        for row in self.rows:
            cells = [self._values(row[j], j, wide[j]) for j in range(len(self.columns))]
            writer.writerow([_plain(value) for pair in cells for value in pair])
        return file.getvalue()

    def _values(self, cell: str, column: int, wide: bool) -> list[str]:
        if column >= self.labels:
            cell = "" if cell == MISSING else re.sub(r"(?<=\d),(?=\d{3})", "", cell)
        value, _, error = cell.partition(ERROR) if wide else (cell, "", "")
        return [value, error] if wide else [value]

    def tex(self) -> str:
        """Format as a LaTeX ``tabular`` for booktabs, with errors as subscripts as in the paper."""
        layout = "".join("l" if i < self.labels else "r" for i in range(len(self.columns)))
        lines = [rf"\begin{{tabular}}{{{layout}}}", r"\toprule"]
        lines += [" & ".join(map(_escaped, self.columns)) + r" \\", r"\midrule"]
        for i, row in enumerate(self.rows):
            if i in self.rules:
                lines.append(r"\midrule")
            cells = [_tex_cell(cell, (i, j) in self.bold) for j, cell in enumerate(row)]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _plain(cell: str) -> str:
    """``cell`` with a quote before what a spreadsheet would compute (OWASP, CSV injection), but no number."""
    if not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _escaped(text: str) -> str:
    return "".join(TEX.get(letter, letter) for letter in text)


def _tex_cell(cell: str, bold: bool) -> str:
    value, mark, error = cell.partition(ERROR)
    shown = re.sub(r"^-(?=\d)", "$-$", _escaped(value))
    shown = rf"\textbf{{{shown}}}" if bold else shown
    return rf"{shown}$_{{\pm{_escaped(error)}}}$" if mark else shown


def save(table: Table, folder: Path, name: str) -> None:
    """Write ``table`` into ``folder`` as ``name.csv`` and ``name.tex``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{name}.csv", table.csv())
    write_text(folder / f"{name}.tex", table.tex())


def best(values: Sequence[float | None], *, highest: bool = True) -> list[int]:
    """Return the indices of the best ``values``; none if fewer than two are known or all are equal."""
    known = [value for value in values if value is not None]
    if len(known) < 2 or min(known) == max(known):
        return []
    wanted = max(known) if highest else min(known)
    return [i for i, value in enumerate(values) if value == wanted]


def percent(value: float | None, digits: int = 1) -> str:
    """Format a share as percent."""
    return MISSING if value is None else f"{100 * value:.{digits}f}"


def share(metrics: Mapping[str, Any], name: str) -> str:
    """Format a share with its standard error, in percent."""
    error = metrics.get(f"{name}_stderr")
    return percent(metrics.get(name)) + ("" if error is None else f" ± {100 * error:.1f}")


def number(value: float | None, digits: int = 2) -> str:
    """Format a number for a table."""
    return MISSING if value is None else f"{value:.{digits}f}"


def count(value: float | None) -> str:
    """Format a whole number: 12,345."""
    return MISSING if value is None else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """Format seconds: 0.012 s, 12.3 s, 4 min 05 s or 2 h 03 min."""
    return MISSING if seconds is None else seconds_in_words(seconds)


def memory(size: float | None) -> str:
    """Format bytes: 0.1 MiB, 23.4 MiB or 1.5 GiB."""
    if size is None:
        return MISSING
    return f"{size / 2**20:,.1f} MiB" if size < 2**30 else f"{size / 2**30:,.1f} GiB"


def over_seeds(values: Sequence[float | None], stderr: float | None = None) -> str:
    """Format mean ± standard deviation over seeds, or one value ± its standard error, in percent."""
    known = [value for value in values if value is not None]
    if not known:
        return MISSING
    error = statistics.stdev(known) if len(known) > 1 else stderr
    return percent(statistics.fmean(known)) + ("" if error is None else f" ± {100 * error:.1f}")
