"""Plots of computed metrics as PNG and PDF files.

Every function draws one plot from the plain values of ``results.json``. Matplotlib is imported on first use
and needs no display.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

MISSING = "no plots: matplotlib is not installed; pip install 'soft-reasoning[plots]' draws them"
BLUE, ORANGE, GREY = "#2f6db3", "#e0812c", "#9a9a9a"
MARKERS = "osD^vpX<>h*"
"""Their number shares no factor with that of Matplotlib's ten colours, so 110 methods differ."""
STYLE: dict[str, Any] = {
    "figure.dpi": 150,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "text.parse_math": False,  # a dollar sign in a label is a dollar sign
}


def available() -> bool:
    """Whether matplotlib can be imported."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def panels(
    path: Path, rows: int = 1, columns: int = 1, width: float = 6.4, height: float = 3.8
) -> Iterator[Any]:
    """Yield the axes (rows, columns) of a new figure and write it to ``path`` (PNG, and PDF beside it).

    It changes no global state of Matplotlib.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(cast(Any, STYLE)):
        drawn = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(drawn)
        yield drawn.subplots(rows, columns, squeeze=False)
        drawn.savefig(path)
        drawn.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})


@contextmanager
def figure(path: Path, width: float = 6.4, height: float = 3.8) -> Iterator[Any]:
    """Yield the only axes of a new figure; as :func:`panels`."""
    with panels(path, width=width, height=height) as axes:
        yield axes[0][0]


def style_of(i: int) -> tuple[str, str]:
    """Return (colour, marker) of the ``i``-th method."""
    return f"C{i % 10}", MARKERS[i % len(MARKERS)]


def percent_axis(axes: Any, name: str) -> None:
    """Limit the ``name`` ("x" or "y") axis to 0 to 100, at least 10 long, so that equal values look equal."""
    low, high = getattr(axes, f"get_{name}lim")()
    middle, half = (low + high) / 2, max((high - low) / 2, 5)
    low, high = middle - half, middle + half
    if low < 0:
        low, high = 0, max(high, 10)
    if high > 100:
        low, high = min(low, 90), 100
    getattr(axes, f"set_{name}lim")(low, high)


def after_each_round(curves: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Plot, for each run, accuracy if stopped after a round and the best reward so far, over all problems.

    ``curves`` holds rows of ``stopped.if_stopped`` by label. Bars are 95 % intervals.
    """
    with panels(path, 1, 2, width=9.0) as axes:
        left, right = axes[0]
        for i, (label, rows) in enumerate(curves.items()):
            color, marker = style_of(i)
            known = [row for row in rows if row["accuracy"] is not None]
            if known:
                left.errorbar(
                    [row["round"] for row in known], [100 * row["accuracy"] for row in known],
                    [196 * (row["stderr"] or 0.0) for row in known], color=color, marker=marker, elinewidth=1,
                )  # fmt: skip
            known = [row for row in rows if row["best_reward"] is not None]
            right.plot(
                [row["round"] for row in known], [row["best_reward"] for row in known],
                color=color, marker=marker, label=label,
            )  # fmt: skip
        most = max(len(rows) for rows in curves.values())
        for axis, title in ((left, "Accuracy if stopped after a round (%)"), (right, "Best reward so far")):
            axis.set_title(title)
            axis.set_xticks(range(1, most + 1))
            axis.set_xlabel("round (all problems)")
            axis.margins(0.08, 0.15)
        percent_axis(left, "y")
        left.figure.legend(loc="outside lower center", ncols=2)


def accuracy_against_tokens(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot the accuracy (percent, with its 95 % interval) of each row against generated tokens per problem.

    A line shows where a row with a ``curve`` would have been after each of its rounds.
    """
    columns = 2 if max(len(row["label"]) for row in rows) < 36 else 1
    legend = 0.22 * math.ceil(len(rows) / columns)
    with figure(path, 6.8, 3.7 + legend) as axes:
        for i, row in enumerate(rows):
            error = None if row["interval"] is None else 100 * row["interval"]
            color, marker = style_of(i)
            if curve := row.get("curve"):
                axes.plot([x for x, _ in curve], [100 * y for _, y in curve], "-", color=color, alpha=0.4)
            axes.errorbar(row["tokens"], 100 * row["accuracy"], error, elinewidth=1, color=color, alpha=0.6)
            axes.plot(
                row["tokens"], 100 * row["accuracy"], marker, markersize=8,
                markeredgecolor="white", color=color, label=row["label"],
            )  # fmt: skip
        if min(row["tokens"] for row in rows) > 0:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.set_xlabel("generated tokens per problem, verifier included")
        axes.set_ylabel("accuracy (%)")
        axes.set_title("Accuracy against tokens")
        axes.margins(y=0.15)
        percent_axis(axes, "y")
        axes.figure.legend(loc="outside lower center", ncols=columns, fontsize=9)
