"""Plots of a sweep: lines over a value, points by setting, panels by data set, or a distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from soft_reasoning.reports.cells import Cell, datasets_of
from soft_reasoning.reports.plots import BLUE, ORANGE, figure, panels, percent_axis, style_of
from soft_reasoning.reports.sweeps import ACCURACY, COVERAGE, SHARES, Metric

LINES = {ACCURACY.name: BLUE, COVERAGE.name: ORANGE}
LINE_STYLES = ("-", "--", ":", "-.")
APART = 0.1
"""Distance in rows between the points of two metrics, so that equal values do not overlap."""


def draw_sweep(cells: Sequence[Cell], path: Path) -> None:
    """Plot the cells of a sweep: a distribution over seeds, or else a panel per model and data set.

    A panel has lines over one swept number, or points by setting; markers show the number of shots.
    """
    if len(cells) == 1:
        return _distribution(cells[0], path)
    models = list(dict.fromkeys(cell.model for cell in cells))
    datasets, labels = datasets_of(cells), list(dict.fromkeys(cell.label for cell in cells))
    shots, key = sorted({cell.shots for cell in cells}), swept_number(cells)
    single = len(models) == len(datasets) == 1
    height = 2.6 if key else 0.9 + 0.33 * len(labels)
    width = 2.9 * len(datasets) + (3.5 if single else 0.6) + (0 if key else 0.085 * max(map(len, labels)))
    entries = 2 * len(shots)
    columns = max(1, min(entries, int(width / 2.1)))
    size = {"width": width, "height": height * len(models) + 0.7 + 0.22 * math.ceil(entries / columns)}
    with panels(path, rows=len(models), columns=len(datasets), **size) as axes_of:
        for i, model in enumerate(models):
            for j, dataset in enumerate(datasets):
                axes = axes_of[i][j]
                for k, count in enumerate(shots):
                    some = [cell for cell in cells if cell.place == (model, dataset, count)]
                    name, marker = f", {count} shots" if len(shots) > 1 else "", style_of(k)[1]
                    if some and key:
                        _lines(axes, some, key, marker + LINE_STYLES[k % 4], name)
                    elif some:
                        shift = (k - (len(shots) - 1) / 2) * 0.5 / len(shots)
                        _points(
                            axes, some, labels if j == 0 else [""] * len(labels), labels, marker, shift, name
                        )
                percent_axis(axes, "y" if key else "x")
                axes.set_title(dataset if len(models) == 1 else f"{dataset}, {model}", fontsize=9)
        if key:
            axes_of[0][0].set_ylabel("%")
        if single:
            axes_of[0][0].set_title(f"Accuracy and coverage by {key or 'setting'}")
        handles: dict[str, Any] = {}
        for axes in axes_of.flat:
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        legend = {"loc": "outside lower center", "ncols": columns, "fontsize": 9}
        axes_of[0][0].figure.legend(handles.values(), handles.keys(), **legend)


def swept_number(cells: Sequence[Cell]) -> str | None:
    """Return the only key of the cells' settings if its values are several numbers, else None."""
    keys = {key for cell in cells for key in cell.setting}
    if len(keys) != 1:
        return None
    (key,) = keys
    values = [cell.setting.get(key) for cell in cells]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return key if numbers and len(set(values)) > 1 else None


def _lines(axes: Any, cells: Sequence[Cell], key: str, style: str, name: str) -> None:
    """A line per metric over the values of ``key``, with its standard deviation as a band."""
    values = sorted({cell.setting[key] for cell in cells})
    for metric in SHARES:
        rows = [(cell.setting[key], *_mean_error(cell, metric)) for cell in cells if cell.each(*metric.path)]
        if not rows:
            continue
        at, means, errors = (np.array(column) for column in zip(*sorted(rows), strict=True))
        color = LINES[metric.name]
        axes.plot(at, means, style, color=color, label=f"{metric.name}{name}", markersize=5, clip_on=False)
        low, high = np.maximum(means - errors, 0), np.minimum(means + errors, 100)
        axes.fill_between(at, low, high, color=color, alpha=0.15, linewidth=0)
    if values[0] > 0 and values[-1] / values[0] >= 20:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel(key)
    axes.margins(y=0.15)


def _points(
    axes: Any,
    cells: Sequence[Cell],
    names: Sequence[str],
    labels: Sequence[str],
    marker: str,
    shift: float,
    name: str,
) -> None:
    """Points by setting, one below the other, with their standard deviations."""
    for i, metric in enumerate(SHARES):
        place = shift + APART * (i - (len(SHARES) - 1) / 2)
        rows = [
            (labels.index(cell.label) + place, *_mean_error(cell, metric))
            for cell in cells
            if cell.each(*metric.path)
        ]
        if not rows:
            continue
        at, means, errors = (np.array(column) for column in zip(*rows, strict=True))
        axes.errorbar(
            means, at, xerr=[np.minimum(errors, means), np.minimum(errors, 100 - means)], fmt=marker,
            capsize=3, markersize=6, color=LINES[metric.name], label=f"{metric.name}{name}",
            markeredgecolor="white", clip_on=False,
        )  # fmt: skip
    axes.set_yticks(range(len(labels)), names)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel("%")
    axes.margins(x=0.1)


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
        axes.set_title(f"Accuracy over {len(values)} draws of {cell.label}")


def distribution_note(values: Sequence[float]) -> str:
    """Describe percentages by mean ± standard deviation and range."""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread} %, range {min(values):.1f} to {max(values):.1f}"
