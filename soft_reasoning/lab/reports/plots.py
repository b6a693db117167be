"""Plots of metrics as SVG and PDF files. Matplotlib is imported on first use and needs no display."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from soft_reasoning.lab.reports.statistics import wilson
from soft_reasoning.lab.runs.files import Json

MISSING = "no plots: matplotlib is not installed; pip install matplotlib"
TEXT, MUTED, LINE, PANEL, BLUE, ORANGE = "#16181d", "#5f6877", "#e1e4ea", "#ffffff", "#3a4fd0", "#c2691c"
MARKERS = "osD^vpX<>h*"
"""Their number is coprime to Matplotlib's ten colours, so 110 methods look different."""
STYLE: dict[str, Any] = {
    "figure.dpi": 150,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "grid.color": LINE,
    "text.color": TEXT,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "text.parse_math": False,  # a dollar sign in a label is a dollar sign
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "soft_reasoning",  # the same plot is the same file
}


def available() -> bool:
    """Whether matplotlib can be imported."""
    return find_spec("matplotlib") is not None


@contextmanager
def panels(
    path: Path, rows: int = 1, columns: int = 1, width: float = 6.4, height: float = 3.8
) -> Generator[Any]:
    """Yield the axes (rows, columns) of a new figure, then write it to ``path``, and next to it as PDF.

    Matplotlib's global state does not change.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure.subplots(rows, columns, squeeze=False)
        undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        for file in (path, path.with_suffix(".pdf")):
            metadata, clear = undated.get(file.suffix), file.suffix == ".svg"
            figure.savefig(file, bbox_inches="tight", metadata=metadata, transparent=clear)


def percent_axis(axes: Any, name: str) -> None:
    """Limit the ``name`` ("x" or "y") axis to 0..100, at least 10 long, to hide tiny differences."""
    low, high = getattr(axes, f"get_{name}lim")()
    half = min(max((high - low) / 2, 5), 50)
    middle = min(max((low + high) / 2, half), 100 - half)
    getattr(axes, f"set_{name}lim")(middle - half, middle + half)


def log_axis(axes: Any, base: int) -> None:
    """Make the x axis logarithmic, with plain numbers at the powers of ``base``."""
    axes.set_xscale("log", base=base)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.xaxis.set_minor_formatter(lambda *_: "")


def errors_of(values: Any, low: Any, high: Any) -> Any:
    """Lengths (2, n) of error bars from ``low`` to ``high`` about ``values``, in percent; 0 where unknown."""
    return np.nan_to_num(100 * np.maximum(np.stack([values - low, high - values]), 0.0))


def after_each_round(rows: Sequence[Json], problems: int, path: Path) -> None:
    """Plot accuracy if stopped after a round, with its 95 % interval, and the best reward so far.

    ``rows`` are those of ``after_each_round`` in a run's results, over ``problems`` with a reference answer.
    """
    frame: Any = pd.DataFrame(rows, dtype=float)
    with panels(path, 1, 2, width=7.6, height=2.9) as axes:
        left, right = axes[0]
        ends = [wilson(share, problems) for share in frame["accuracy"]]
        errors = errors_of(frame["accuracy"].to_numpy(), *np.transpose(ends))
        left.errorbar(frame["round"], 100 * frame["accuracy"], errors, color=BLUE, marker="o")
        right.plot(frame["round"], frame["best_reward"], color=BLUE, marker="o")
        for axis, title in ((left, "Accuracy if stopped after a round (%)"), (right, "Best reward so far")):
            axis.set(title=title, xticks=frame["round"], xlabel="round (all problems)")
            axis.margins(0.08, 0.15)
        percent_axis(left, "y")


def accuracy_against_tokens(rows: Sequence[Json], path: Path) -> None:
    """Plot the accuracy (percent, with its 95 % interval) of each row against generated tokens per problem.

    For a row with a ``curve`` a line connects its values after each of its rounds.
    """
    columns = 2 if max(len(row["label"]) for row in rows) < 36 else 1
    with panels(path, width=6.8, height=3.7 + 0.22 * math.ceil(len(rows) / columns)) as grid:
        axes = grid[0][0]
        for i, row in enumerate(rows):
            point, *_ = axes.errorbar(
                row["tokens"],
                100 * row["accuracy"],
                errors_of(*(np.array([row[f"accuracy{end}"]]) for end in ("", " low", " high"))),
                linestyle="",
                marker=MARKERS[i % len(MARKERS)],
                markersize=8,
                markeredgecolor=PANEL,
                elinewidth=1,
                label=row["label"],
            )
            tokens, shares = zip(*row["curve"], strict=True) if row.get("curve") else ((), ())
            axes.plot(tokens, [100 * share for share in shares], color=point.get_color(), alpha=0.4)
        if min(row["tokens"] for row in rows) > 0:
            log_axis(axes, 10)
        axes.set(
            xlabel="generated tokens per problem, verifier included",
            ylabel="accuracy (%)",
            title="Accuracy against tokens",
            ymargin=0.15,
        )
        percent_axis(axes, "y")
        axes.figure.legend(loc="outside lower center", ncols=columns, fontsize=9)


def sweep(frame: Any, path: Path, number: str | None) -> None:
    """Plot the shares of a sweep, a panel for each model and data set.

    Args:
        frame: A row for each setting and metric, from ``sweep.shares``, with its position ``at`` on the
            axis: a value of the option ``number``, or its method.
        path: The SVG file.
        number: The option over which lines are drawn; None draws bars by method.
    """
    models, datasets, methods = (list(dict.fromkeys(frame[key])) for key in ("model", "data set", "at"))
    if frame["shots"].nunique() > 1:
        frame["metric"] += ", " + frame["shots"].astype(str) + " shots"
    kinds = frame["metric"].nunique()
    width = 3.5 + 2.9 * len(datasets) + (0 if number else 0.085 * max(map(len, methods)))
    height = len(models) * (2.6 if number else 0.9 + 0.2 * kinds * len(methods)) + 0.5 + 0.22 * kinds
    with panels(path, len(models), len(datasets), width, height) as grid:
        for (i, model), (j, dataset) in itertools.product(enumerate(models), enumerate(datasets)):
            axes, group = grid[i][j], frame[(frame["model"] == model) & (frame["data set"] == dataset)]
            values, low, high = (
                group.pivot(index="at", columns="metric", values=key).astype(float)
                for key in ("mean", "low", "high")
            )
            if not number:
                values, low, high = (table.reindex(methods) for table in (values, low, high))
            means, errors = 100 * values, errors_of(*(table.to_numpy().T for table in (values, low, high)))
            errors = errors.swapaxes(0, 1)  # (metrics, 2, settings)
            if number:
                means.plot(ax=axes, yerr=errors, marker="o", capsize=3, legend=False)
                axes.set(xlabel=number, ylabel="%")
                if frame["at"].min() > 0 and frame["at"].max() / frame["at"].min() >= 20:
                    log_axis(axes, 2)
                percent_axis(axes, "y")
            else:
                means.plot.barh(ax=axes, xerr=errors, capsize=2, width=0.7, legend=False)
                axes.set(xlim=(0, 100), xlabel="%", ylabel="")
                axes.invert_yaxis()
            axes.set_title(f"{dataset}, {model}", fontsize=9)
        handles, labels = grid[0][0].get_legend_handles_labels()
        grid[0][0].figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9)


def distribution(values: Sequence[float], label: str, path: Path) -> None:
    """Plot a histogram of accuracies (percent) over draws, with mean ± standard deviation and range."""
    mean, std = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
    with panels(path) as grid:
        axes = grid[0][0]
        axes.hist(values, bins=min(20, max(1, len(values) // 2)), color=BLUE, edgecolor=PANEL)
        spread = f"mean {mean:.1f} ± {std:.1f} %, range {min(values):.1f} to {max(values):.1f}"
        axes.axvline(mean, color=ORANGE, label=spread)
        axes.axvspan(mean - std, mean + std, color=ORANGE, alpha=0.15, label="± standard deviation")
        axes.figure.legend(loc="outside lower center", ncols=2)
        percent_axis(axes, "x")
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set(xlabel="accuracy (%)", ylabel="runs", title=f"Accuracy over {len(values)} draws of {label}")
