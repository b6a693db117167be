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
BLUE, ORANGE, GREEN, GREY = "#2f6db3", "#e0812c", "#3f9b5b", "#9a9a9a"
COLORS = (
    BLUE, ORANGE, GREEN, "#8a5fb0", "#c0504d", "#4aa3a2", "#b8912f", "#5a5a5a", "#d16ba5", "#7fb3e6",
    "#8c564b",
)  # fmt: skip
MARKERS = "osD^vpX<>h"
"""Their number shares no factor with that of the colours, so 110 methods differ."""
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
    return COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)]


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


def _points(rows: Sequence[Mapping[str, Any]], key: str, scale: float = 1.0) -> tuple[list[int], list[float]]:
    known = [(row["round"], scale * row[key]) for row in rows if row[key] is not None]
    return [x for x, _ in known], [y for _, y in known]


def _rounds_axis(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rounds as ticks, with the number of problems still searching in each."""
    names = [f"{row['round']}\nn = {row['problems']}" for row in rows]
    axes.set_xticks([row["round"] for row in rows], names)
    axes.set_xlabel("round (n problems still searching)")
    axes.margins(x=0.08)


def accuracy_by_round(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot the candidates' accuracy in each round, and coverage of all rounds so far, in percent."""
    with figure(path) as axes:
        axes.plot(*_points(rows, "coverage", 100), "o-", color=ORANGE, label="all problems, coverage so far")
        axes.plot(*_points(rows, "accuracy", 100), "o-", color=BLUE, label="the round's candidates, accuracy")
        axes.set_ylim(0, 100)
        axes.set_ylabel("%")
        axes.set_title("Accuracy and coverage by round")
        _rounds_axis(axes, rows)
        axes.figure.legend(loc="outside upper center", ncols=2)


def reward_by_round(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot the mean and best reward of each round."""
    with figure(path) as axes:
        axes.plot(*_points(rows, "best_reward"), "o-", color=GREEN, label="best of the round")
        axes.plot(*_points(rows, "reward"), "o-", color=BLUE, label="mean of the round")
        axes.set_ylabel("reward")
        axes.set_title("Reward by round")
        axes.margins(y=0.15)
        _rounds_axis(axes, rows)
        axes.figure.legend(loc="outside upper center", ncols=2)


def tokens(by_role: Mapping[str, Mapping[str, int]], problems: int, path: Path) -> None:
    """Plot tokens per problem by role: computed, cached and generated."""
    roles = [role for role in by_role if role != "total"]
    parts = {
        "prompt, computed": (GREY, [by_role[r]["prompt"] - by_role[r]["cached"] for r in roles]),
        "prompt, cached": ("#d5d5d5", [by_role[r]["cached"] for r in roles]),
        "generated": (BLUE, [by_role[r]["generated"] for r in roles]),
    }
    with figure(path, height=1.5 + 0.55 * len(roles)) as axes:
        left = [0.0] * len(roles)
        for label, (color, counts) in parts.items():
            widths = [c / problems for c in counts]
            axes.barh(roles, widths, left=left, height=0.6, color=color, label=label)
            left = [a + b for a, b in zip(left, widths, strict=True)]
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel("tokens per problem")
        axes.set_title("Tokens by role")
        axes.figure.legend(loc="outside upper center", ncols=3)


def accuracy_against_tokens(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot the accuracy (percent, with its error) of each row against generated tokens per problem."""
    columns = 2 if max(len(row["label"]) for row in rows) < 36 else 1
    legend = 0.22 * math.ceil(len(rows) / columns)
    with figure(path, 6.8, 3.7 + legend) as axes:
        for i, row in enumerate(rows):
            error = None if row["error"] is None else 100 * row["error"]
            color, marker = style_of(i)
            axes.errorbar(row["tokens"], 100 * row["accuracy"], error, elinewidth=1, color=color, alpha=0.6)
            axes.plot(
                row["tokens"], 100 * row["accuracy"], marker, markersize=8,
                markeredgecolor="white", color=color, label=row["label"],
            )  # fmt: skip
        low, high = min(row["tokens"] for row in rows), max(row["tokens"] for row in rows)
        if low > 0:
            log_axis(axes, low, high)
        axes.set_xlabel("generated tokens per problem, verifier included")
        axes.set_ylabel("accuracy (%)")
        axes.set_title("Accuracy against tokens")
        axes.margins(y=0.15)
        percent_axis(axes, "y")
        axes.figure.legend(loc="outside lower center", ncols=columns, fontsize=9)


def log_axis(axes: Any, low: float, high: float) -> None:
    """Make a logarithmic x axis around ``low`` to ``high`` with plain numbers at several ticks."""
    from matplotlib.ticker import MaxNLocator

    left, right = low / 1.4, high * 1.4
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    powers = range(math.floor(math.log10(left)), math.ceil(math.log10(right)) + 1)
    ticks = [m * 10.0**e for e in powers for m in (1, 2, 5) if left <= m * 10.0**e <= right]
    if len(ticks) < 4:
        ticks = [t for t in MaxNLocator(6).tick_values(left, right) if left <= t <= right]
    axes.set_xticks(ticks, [f"{tick:,.10g}" for tick in ticks])
    axes.xaxis.set_minor_formatter(lambda value, _: "")
