"""Plots from computed metrics, as PNG files. matplotlib is imported on first use, without a display.

Every function writes one file and knows no run: it takes the plain values that ``results.json`` holds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MISSING = "no plots: matplotlib is not installed; pip install 'soft-reasoning[plots]' draws them"
BLUE, ORANGE, GREEN, GREY = "#2f6db3", "#e0812c", "#3f9b5b", "#9a9a9a"
MARKERS = "osD^vp<"
STYLE = {
    "figure.dpi": 150,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
}


def available() -> bool:
    """Whether matplotlib can be imported."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def _figure(path: Path, width: float = 6.4, height: float = 3.8) -> Iterator[Any]:
    """The axes of a new figure, written to ``path`` at the end; leaves no global state behind."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure.add_subplot()
        figure.savefig(path)


def _percent_axis(axes: Any, name: str) -> None:
    """The ``name`` ("x" or "y") axis within 0 to 100, at least 10 long, so that equal values look equal."""
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
    """Rounds as ticks, with how many problems were still searching in each."""
    names = [f"{row['round']}\nn = {row['problems']}" for row in rows]
    axes.set_xticks([row["round"] for row in rows], names)
    axes.set_xlabel("round (n problems still searching)")
    axes.margins(x=0.08)


def accuracy_by_round(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Candidates' accuracy in each round, and coverage of all rounds so far, in percent."""
    with _figure(path) as axes:
        axes.plot(*_points(rows, "coverage", 100), "o-", color=ORANGE, label="all problems, coverage so far")
        axes.plot(*_points(rows, "accuracy", 100), "o-", color=BLUE, label="the round's candidates, accuracy")
        axes.set_ylim(0, 100)
        axes.set_ylabel("%")
        _rounds_axis(axes, rows)
        axes.figure.legend(loc="outside upper center", ncols=2)


def reward_by_round(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Mean and best reward in each round."""
    with _figure(path) as axes:
        axes.plot(*_points(rows, "best_reward"), "o-", color=GREEN, label="best of the round")
        axes.plot(*_points(rows, "reward"), "o-", color=BLUE, label="mean of the round")
        axes.set_ylabel("reward")
        axes.margins(y=0.15)
        _rounds_axis(axes, rows)
        axes.figure.legend(loc="outside upper center", ncols=2)


def tokens(by_role: Mapping[str, Mapping[str, int]], problems: int, path: Path) -> None:
    """Tokens a problem by role: read anew, reused from the cache, and generated."""
    roles = [role for role in by_role if role != "total"]
    parts = {
        "prompt, computed": (GREY, [by_role[r]["prompt"] - by_role[r]["cached"] for r in roles]),
        "prompt, cached": ("#d5d5d5", [by_role[r]["cached"] for r in roles]),
        "generated": (BLUE, [by_role[r]["generated"] for r in roles]),
    }
    with _figure(path, height=1.5 + 0.55 * len(roles)) as axes:
        left = [0.0] * len(roles)
        for label, (color, counts) in parts.items():
            widths = [c / problems for c in counts]
            axes.barh(roles, widths, left=left, height=0.6, color=color, label=label)
            left = [a + b for a, b in zip(left, widths, strict=True)]
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel("tokens a problem")
        axes.figure.legend(loc="outside upper center", ncols=3)


def accuracy_against_tokens(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Accuracy (percent, with its error) of each row's ``label`` against generated ``tokens`` a problem."""
    with _figure(path, 6.8, 4.0 + 0.12 * len(rows)) as axes:
        colors = (BLUE, ORANGE, GREEN, "#8a5fb0", "#c0504d", "#4aa3a2", "#b8912f", GREY)
        for i, row in enumerate(rows):
            error = None if row["error"] is None else 100 * row["error"]
            color = colors[i % len(colors)]
            axes.errorbar(row["tokens"], 100 * row["accuracy"], error, elinewidth=1, color=color, alpha=0.6)
            axes.plot(
                row["tokens"], 100 * row["accuracy"], MARKERS[i % len(MARKERS)], markersize=8,
                markeredgecolor="white", color=color, label=row["label"],
            )  # fmt: skip
        if min(row["tokens"] for row in rows) > 0:
            axes.set_xscale("log")
            low, high = min(row["tokens"] for row in rows), max(row["tokens"] for row in rows)
            axes.set_xlim(low / 1.4, high * 1.4)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            axes.xaxis.set_minor_formatter(lambda value, _: "")
            ticks = [m * 10**e for e in range(7) for m in (1, 2, 5) if low / 1.4 <= m * 10**e <= high * 1.4]
            axes.set_xticks(ticks)
        axes.set_xlabel("generated tokens a problem, verifier included")
        axes.set_ylabel("accuracy (%)")
        axes.margins(y=0.15)
        _percent_axis(axes, "y")
        axes.figure.legend(loc="outside lower center", ncols=2, fontsize=9)


def accuracy_by_setting(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """A sweep: accuracy and coverage (percent) of every row's ``setting``.

    Points with standard deviations over seeds (of one run: its standard error), as lines where one
    numeric value was swept. Rows hold lists ``accuracy`` and ``coverage``, one value a seed, and their
    ``_stderr``. A single row, a sweep over seeds alone, is drawn as a histogram of its accuracies.
    """
    if len(rows) == 1:
        _distribution(rows[0]["accuracy"], path)
        return
    values = [list(row["setting"].values()) for row in rows]
    numeric = all(
        len(v) == 1 and isinstance(v[0], int | float) and not isinstance(v[0], bool) for v in values
    )
    labels = [
        ", ".join(
            str(value) if name == "label" else f"{name}={value}"
            for name, value in row["setting"].items()
            if value is not None
        )
        for row in rows
    ]
    with _figure(path, height=3.8 if numeric else 1.4 + 0.4 * len(rows)) as axes:
        for name, color in (("coverage", ORANGE), ("accuracy", BLUE)):
            known = [(i, *_mean_error(row[name], row[f"{name}_stderr"])) for i, row in enumerate(rows)]
            known = [one for one in known if one[1] is not None]
            at = [values[i][0] if numeric else i for i, _, _ in known]
            means, errors = [100 * m for _, m, _ in known], [100 * e for _, _, e in known]
            if numeric:
                axes.errorbar(at, means, yerr=errors, fmt="o-", capsize=3, color=color, label=name)
            else:
                axes.errorbar(means, at, xerr=errors, fmt="o", capsize=3, color=color, label=name)
        if numeric:
            axes.set_xlabel(next(iter(rows[0]["setting"])))
            axes.set_xticks([v[0] for v in values])
            axes.set_ylabel("%")
            axes.margins(y=0.15)
            _percent_axis(axes, "y")
        else:
            axes.set_yticks(range(len(rows)), labels)
            axes.invert_yaxis()
            axes.set_xlabel("%")
            axes.margins(x=0.1, y=0.15)
            _percent_axis(axes, "x")
        axes.figure.legend(loc="outside upper center", ncols=2)


def _mean_error(values: Sequence[float | None], stderr: float | None) -> tuple[float | None, float]:
    """Mean and standard deviation over seeds; of a single run its value and its standard error."""
    known = [value for value in values if value is not None]
    if not known:
        return None, 0.0
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else stderr or 0.0


def _distribution(values: Sequence[float | None], path: Path) -> None:
    """A histogram of accuracies over seeds, with their mean."""
    known = [100 * value for value in values if value is not None]
    with _figure(path) as axes:
        axes.hist(known, bins=min(20, max(1, len(known))), color=BLUE, edgecolor="white")
        if known:
            axes.axvline(statistics.fmean(known), color=ORANGE, label=f"mean {statistics.fmean(known):.1f} %")
            axes.figure.legend(loc="outside upper center")
        _percent_axis(axes, "x")
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("accuracy (%)")
        axes.set_ylabel("runs")


def correlation(matrices: Sequence[Sequence[Sequence[float]]], sizes: Sequence[int], path: Path) -> None:
    """Correlation matrices of the points sampled up to each round, one panel a round.

    ``matrices[r]`` is square over the points of rounds 0 to r, in order; the points of a round are
    ``sizes[r]`` many, and lines part the rounds.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        figure = Figure(figsize=(2.2 * len(matrices) + 0.9, 2.8), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(matrices), squeeze=False)[0]
        for r, (axes, matrix) in enumerate(zip(panels, matrices, strict=True)):
            image = axes.imshow(matrix, cmap="RdBu_r", vmin=-1, vmax=1)
            for edge in (sum(sizes[: i + 1]) - 0.5 for i in range(r)):
                axes.axhline(edge, color="black", linewidth=0.6)
                axes.axvline(edge, color="black", linewidth=0.6)
            axes.set_title("first round" if r == 0 else f"after round {r}")
            axes.set_xticks([])
            axes.set_yticks([])
        figure.colorbar(image, ax=panels, shrink=0.8, label="correlation")
        figure.savefig(path)
