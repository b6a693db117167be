"""Tables as text and Markdown, and the one that combines the runs of a sweep."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soft_reasoning.analysis.settings import differing

MISSING = "-"


@dataclass(frozen=True)
class Table:
    """``rows`` of as many cells as ``columns``; the first ``labels`` columns are text, the rest numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1

    def text(self) -> str:
        """Aligned for a terminal: labels to the left, numbers to the right."""
        widths = [max(map(len, cells)) for cells in zip(self.columns, *self.rows, strict=True)]

        def line(cells: Sequence[str]) -> str:
            padded = [
                cell.ljust(width) if i < self.labels else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ]
            return "  ".join(padded).rstrip()

        rule = "  ".join("-" * width for width in widths)
        return "\n".join([line(self.columns), rule, *map(line, self.rows)])

    def markdown(self) -> str:
        """A Markdown table, numbers aligned to the right."""
        marks = ["---" if i < self.labels else "---:" for i in range(len(self.columns))]
        lines = [[cell.replace("|", "\\|") for cell in line] for line in (self.columns, marks, *self.rows)]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(value: float | None, digits: int = 1) -> str:
    """A share as percent."""
    return MISSING if value is None else f"{100 * value:.{digits}f}"


def share(metrics: Mapping[str, Any], name: str) -> str:
    """A share with its standard error, in percent."""
    error = metrics.get(f"{name}_stderr")
    return percent(metrics.get(name)) + ("" if error is None else f" ± {100 * error:.1f}")


def number(value: float | None, digits: int = 2) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"


def count(value: float | None) -> str:
    """A whole number with thin groups: 12,345."""
    return MISSING if value is None else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """0.012 s, 12.3 s, 4 min 05 s or 2 h 03 min."""
    if seconds is None:
        return MISSING
    if 0 < seconds < 1:
        return f"{seconds:.2g} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def memory(size: float | None) -> str:
    """Bytes as 0.1 MiB, 23.4 MiB or 1.5 GiB."""
    if size is None:
        return MISSING
    return f"{size / 2**20:,.1f} MiB" if size < 2**30 else f"{size / 2**30:,.1f} GiB"


def over_seeds(values: Sequence[float | None], stderr: float | None = None) -> str:
    """Percent: mean ± standard deviation over several seeds, or one value ± its standard error."""
    known = [value for value in values if value is not None]
    if not known:
        return MISSING
    error = statistics.stdev(known) if len(known) > 1 else stderr
    return percent(statistics.fmean(known)) + ("" if error is None else f" ± {100 * error:.1f}")


def combine(folders: Sequence[str | Path], folder: str | Path | None = None) -> Table:
    """One table over the runs of a sweep: a row for each setting, mean ± standard deviation over seeds.

    Columns are the keys whose values differ between the runs, ``seed`` apart. With ``folder`` it is also
    printed and written there as ``sweep.md`` and, unrounded and run by run, ``sweep.json``.
    """
    paths = [Path(one) for one in folders]
    runs = [json.loads((path / "results.json").read_bytes()) for path in paths]
    configs = [json.loads((path / "manifest.json").read_bytes())["config"] for path in paths]
    settings = differing(configs)
    keys = [key for key in (settings[0] if settings else {}) if key != "seed"]
    groups: dict[str, list[int]] = {}
    for i, setting in enumerate(settings):
        groups.setdefault(json.dumps([setting[key] for key in keys]), []).append(i)

    def mean(indices: Sequence[int], *path: str) -> float | None:
        values = []
        for i in indices:
            value: Any = runs[i]
            for name in path:
                value = value.get(name, {}) if isinstance(value, Mapping) else {}
            if isinstance(value, int | float):
                values.append(value)
        return statistics.fmean(values) if values else None

    def shares(indices: Sequence[int], name: str) -> str:
        return over_seeds([runs[i].get(name) for i in indices], runs[indices[0]].get(f"{name}_stderr"))

    rows = [
        [
            *(str(settings[indices[0]][key]) for key in keys),
            str(len(indices)),
            shares(indices, "exact_match"),
            shares(indices, "coverage"),
            number(mean(indices, "rounds", "mean")),
            count(mean(indices, "tokens", "total", "generated")),
            duration(mean(indices, "seconds", "total")),
        ]
        for indices in groups.values()
    ]
    columns = [*keys, "runs", "accuracy %", "coverage %", "rounds", "generated tokens", "time"]
    table = Table(columns, rows, labels=len(keys))
    if folder is not None:
        print(table.text())
        note = "Mean ± standard deviation over seeds; for a single run, ± its standard error."
        (Path(folder) / "sweep.md").write_text(f"{table.markdown()}\n\n{note}\n", encoding="utf-8")
        every = [{"folder": str(p), **s, **r} for p, s, r in zip(paths, settings, runs, strict=True)]
        (Path(folder) / "sweep.json").write_text(json.dumps(every, indent=2) + "\n", encoding="utf-8")
    return table
