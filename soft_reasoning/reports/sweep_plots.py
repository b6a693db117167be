"""Plots of a sweep: lines over a value, points by setting, panels by data set, or a distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soft_reasoning.reports.cells import Cell, datasets_of, row_label, spreads
from soft_reasoning.reports.plots import BLUE, ORANGE, figure, panels, percent_axis, style_of
from soft_reasoning.reports.sweeps import ACCURACY, COVERAGE, SHARES, Metric

LINES = {ACCURACY.name: BLUE, COVERAGE.name: ORANGE}
APART = 0.1
"""Distance in rows between the points of two metrics, so that equal values do not overlap."""
CROWDED = 8
"""Ticks closer than this fraction (1 / CROWDED) of an axis overlap."""


def draw_sweep(cells: Sequence[Cell], path: Path) -> None:
    """Plot the cells of a sweep, with a panel per data set and model.

    The plot is a distribution over seeds, lines over one swept number, or points.
    """
    if len(cells) == 1:
        _distribution(cells[0], path)
    elif spreads(cells):
        _grid(cells, path)
    elif (key := swept_number(cells)) is not None:
        with figure(path) as axes:
            _lines(axes, cells, key, SHARES)
            axes.set_ylabel("%")
            axes.set_title(f"Accuracy and coverage by {key}")
            percent_axis(axes, "y")
            axes.figure.legend(loc="outside lower center", ncols=2)
    else:
        _settings(cells, path)


def swept_number(cells: Sequence[Cell]) -> str | None:
    """Return the only key of the cells' settings if its values are several numbers, else None."""
    keys = {key for cell in cells for key in cell.setting}
    if len(keys) != 1:
        return None
    (key,) = keys
    values = [cell.setting.get(key) for cell in cells]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return key if numbers and len(set(values)) > 1 else None


def _lines(
    axes: Any, cells: Sequence[Cell], key: str, metrics: Sequence[Metric], style: str = "o-", name: str = ""
) -> None:
    """A line per metric over the values of ``key``, with its standard deviation as a band."""
    values = sorted({cell.setting[key] for cell in cells})
    for metric in metrics:
        rows = [(cell.setting[key], *_mean_error(cell, metric)) for cell in cells if cell.each(*metric.path)]
        rows.sort()
        at, means, errors = ([row[i] for row in rows] for i in range(3))
        color = LINES[metric.name]
        axes.plot(at, means, style, color=color, label=f"{metric.name}{name}", markersize=5, clip_on=False)
        low = [max(0.0, m - e) for m, e in zip(means, errors, strict=True)]
        high = [min(100.0, m + e) for m, e in zip(means, errors, strict=True)]
        axes.fill_between(at, low, high, color=color, alpha=0.15, linewidth=0)
    if values[0] > 0 and values[-1] / values[0] >= 20:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        axes.minorticks_off()
    else:
        span = values[-1] - values[0]
        kept = values[:1]
        for value in values[1:]:
            if value - kept[-1] >= span / CROWDED:
                kept.append(value)
        values = kept
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.set_xlabel(key)
    axes.margins(y=0.15)


def _settings(cells: Sequence[Cell], path: Path) -> None:
    """Points by setting, one below the other."""
    longest = max(len(cell.label) for cell in cells)
    with figure(path, 4.2 + 0.085 * longest, 1.9 + 0.4 * len(cells)) as axes:
        _points(axes, cells, [cell.label for cell in cells], SHARES)
        percent_axis(axes, "x")
        axes.set_title("Accuracy and coverage by setting")
        axes.figure.legend(loc="outside lower center", ncols=2)


def _points(
    axes: Any,
    cells: Sequence[Cell],
    labels: Sequence[str],
    metrics: Sequence[Metric],
    *,
    marker: str = "o",
    shift: float = 0.0,
    name: str = "",
    names: bool = True,
) -> None:
    for i, metric in enumerate(metrics):
        some = [cell for cell in cells if cell.each(*metric.path)]
        place = shift + APART * (i - (len(metrics) - 1) / 2)
        rows = [(labels.index(cell.label) + place, *_mean_error(cell, metric)) for cell in some]
        at, means, errors = ([row[i] for row in rows] for i in range(3))
        within = [[min(e, m) for m, e in zip(means, errors, strict=True)],
                  [min(e, 100 - m) for m, e in zip(means, errors, strict=True)]]  # fmt: skip
        axes.errorbar(
            means, at, xerr=within, fmt=marker, capsize=3, markersize=6, color=LINES[metric.name],
            label=f"{metric.name}{name}", markeredgecolor="white", clip_on=False,
        )  # fmt: skip
    axes.set_yticks(range(len(labels)), labels if names else [""] * len(labels))
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel("%")
    axes.margins(x=0.1)


def _grid(cells: Sequence[Cell], path: Path) -> None:
    """A panel per model (rows) and data set (columns); marker and line show the number of shots."""
    models = list(dict.fromkeys(cell.model for cell in cells))
    datasets, labels = datasets_of(cells), list(dict.fromkeys(cell.label for cell in cells))
    shots = sorted({cell.shots for cell in cells})
    key = swept_number(cells)
    longest = max(map(len, labels))
    side = 0.0 if key else 0.085 * longest
    height = 2.6 if key else 0.9 + 0.33 * len(labels)
    width = 2.9 * len(datasets) + 0.6 + side
    entries = (2 if key else 4) * len(shots)
    columns = max(1, min(entries, int(width / 2.1)))
    size = {"width": width, "height": height * len(models) + 0.7 + 0.22 * math.ceil(entries / columns)}
    with panels(path, rows=len(models), columns=len(datasets), **size) as axes_of:
        for i, model in enumerate(models):
            for j, dataset in enumerate(datasets):
                axes = axes_of[i][j]
                for k, count in enumerate(shots):
                    some = [c for c in cells if (c.model, c.dataset, c.shots) == (model, dataset, count)]
                    name = f", {count} shots" if len(shots) > 1 else ""
                    marker = style_of(k)[1]
                    if not some:
                        continue
                    if key:
                        dashes = ("--", "-", ":", "-.")[k % 4] if len(shots) > 1 else "-"
                        _lines(axes, some, key, SHARES, style=marker + dashes, name=name)
                    else:
                        shift = (k - (len(shots) - 1) / 2) * 0.5 / len(shots)
                        more = {"marker": marker, "shift": shift, "name": name, "names": j == 0}
                        _points(axes, some, labels, SHARES, **more)
                percent_axis(axes, "y" if key else "x")
                axes.set_title(dataset if len(models) == 1 else f"{dataset}, {model}")
                axes.title.set_fontsize(9)
        if key:
            axes_of[0][0].set_ylabel("%")
        axes_of[0][0].figure.suptitle("Accuracy and coverage")
        found: dict[str, Any] = {}
        for axes in axes_of.flat:
            found |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        axes_of[0][0].figure.legend(
            found.values(), found.keys(), loc="outside lower center", ncols=columns, fontsize=9
        )


def _mean_error(cell: Cell, metric: Metric) -> tuple[float, float]:
    """Mean and standard deviation over seeds in percent; for a single run its value and standard error."""
    values = cell.each(*metric.path)
    if len(values) > 1:
        error = statistics.stdev(values)
    else:
        error = cell.results[0].get(f"{metric.path[-1]}_stderr") or 0.0
    return 100 * statistics.fmean(values), 100 * error


def _distribution(cell: Cell, path: Path) -> None:
    """A histogram of accuracies over seeds, with mean ± standard deviation and range."""
    values = [100 * value for value in cell.each(*ACCURACY.path)]
    with figure(path) as axes:
        axes.hist(values, bins=min(20, max(1, len(values) // 2)), color=BLUE, edgecolor="white")
        if values:
            mean = statistics.fmean(values)
            axes.axvline(mean, color=ORANGE, label=f"mean {distribution_note(values)}")
            if len(values) > 1:
                std = statistics.stdev(values)
                axes.axvspan(mean - std, mean + std, color=ORANGE, alpha=0.15, label="± standard deviation")
            axes.figure.legend(loc="outside lower center", ncols=2)
        percent_axis(axes, "x")
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("accuracy (%)")
        axes.set_ylabel("runs")
        axes.set_title(f"Accuracy over {len(values)} draws{_of(cell)}")


def distribution_note(values: Sequence[float]) -> str:
    """Describe percentages by mean ± standard deviation and range."""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread} %, range {min(values):.1f} to {max(values):.1f}"


def _of(cell: Cell) -> str:
    label = row_label(cell.setting) or cell.method
    return f" of {label}" if label else ""
