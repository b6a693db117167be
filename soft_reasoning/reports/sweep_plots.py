"""Plots of a sweep: lines over a value, points by setting, panels by data set, or a distribution."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from soft_reasoning.reports.cells import Cell, datasets_of
from soft_reasoning.reports.plots import BLUE, ORANGE, figure, panels, percent_axis, style_of
from soft_reasoning.reports.sweeps import ACCURACY, COVERAGE, SHARES

LINES = {ACCURACY.name: BLUE, COVERAGE.name: ORANGE}
LINE_STYLES = ("-", "--", ":", "-.")
APART = {ACCURACY.name: -0.05, COVERAGE.name: 0.05}
"""Distance of a metric's points from their row, so that equal values do not overlap."""


def draw_sweep(cells: Sequence[Cell], path: Path) -> None:
    """Plot the cells of a sweep: a distribution over seeds, or else a panel per model and data set.

    A panel has lines over one swept number, or points by setting; markers show the number of shots.
    """
    if len(cells) == 1:
        return _distribution(cells[0], path)
    models = list(dict.fromkeys(cell.model for cell in cells))
    labels = list(dict.fromkeys(cell.label for cell in cells))
    datasets, shots, key = datasets_of(cells), sorted({cell.shots for cell in cells}), swept_number(cells)
    frame = _frame(cells, key, labels)
    single = len(models) == len(datasets) == 1
    height = 2.6 if key else 0.9 + 0.33 * len(labels)
    width = 2.9 * len(datasets) + (3.5 if single else 0.6) + (0 if key else 0.085 * max(map(len, labels)))
    entries = 2 * len(shots)
    columns = max(1, min(entries, int(width / 2.1)))
    size = {"width": width, "height": height * len(models) + 0.7 + 0.22 * math.ceil(entries / columns)}
    with panels(path, rows=len(models), columns=len(datasets), **size) as axes_of:
        for (i, model), (j, dataset) in itertools.product(enumerate(models), enumerate(datasets)):
            axes, points = axes_of[i][j], frame[(frame["model"] == model) & (frame["dataset"] == dataset)]
            for (count, metric), rows in points.groupby(["shots", "metric"], sort=False):
                k = shots.index(count)
                name, marker = f"{metric}, {count} shots" if len(shots) > 1 else metric, style_of(k)[1]
                mean, error = rows["mean"], rows["error"]
                bars = [np.minimum(error, mean), np.minimum(error, 100 - mean)]  # they end at 0 and 100
                look = {"color": LINES[metric], "label": name, "capsize": 3, "clip_on": False}
                if key:
                    axes.errorbar(rows["at"], mean, bars, fmt=marker + LINE_STYLES[k % 4], **look)
                else:
                    shift = (k - (len(shots) - 1) / 2) * 0.5 / len(shots) + APART[metric]
                    axes.errorbar(mean, rows["at"] + shift, xerr=bars, fmt=marker, **look)
            if key:
                if frame["at"].min() > 0 and frame["at"].max() / frame["at"].min() >= 20:
                    axes.set_xscale("log", base=2)
                    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
                axes.set_xlabel(key)
                axes.margins(y=0.15)
            else:
                axes.set_yticks(range(len(labels)), labels if j == 0 else [""] * len(labels))
                axes.set_ylim(len(labels) - 0.5, -0.5)
                axes.set_xlabel("%")
                axes.margins(x=0.1)
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


def _frame(cells: Sequence[Cell], key: str | None, labels: Sequence[str]) -> Any:
    """A row per cell and metric: its place on the axis, and mean and error in percent.

    The error is the standard deviation over seeds, or a single run's standard error.
    """
    rows = []
    for cell in cells:
        for metric in SHARES:
            if values := cell.each(*metric.path):
                error = cell.results[0].get(f"{metric.path[-1]}_stderr") or 0.0
                error = statistics.stdev(values) if len(values) > 1 else error
                at = cell.setting[key] if key else labels.index(cell.label)
                rows.append((*cell.place, metric.name, at, 100 * statistics.fmean(values), 100 * error))
    columns = ["model", "dataset", "shots", "metric", "at", "mean", "error"]
    return pd.DataFrame(rows, columns=columns).sort_values("at")


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
