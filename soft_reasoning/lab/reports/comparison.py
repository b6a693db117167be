"""The page of a comparison or a sweep: tables of shares, paired differences, rounds and costs, and plots."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd

from soft_reasoning.lab.reports import plots
from soft_reasoning.lab.reports.frame import (
    ACCURACY,
    PLACE,
    PREFERRED,
    SHARES,
    TOTALS,
    VERDICTS,
    Frame,
    Setting,
    against,
    by_setting,
    default_reference,
    find_reference,
    read_runs,
)
from soft_reasoning.lab.reports.tables import (
    MISSING,
    Table,
    count,
    duration,
    estimate,
    memory,
    number,
    percent,
    save,
)
from soft_reasoning.lab.runs.files import BUDGET_RUNS, COMPARISON, RESULTS, Json, write_json, write_text
from soft_reasoning.lab.runs.manifest import tokens_scale_with_samples
from soft_reasoning.lab.runs.naming import run_name
from soft_reasoning.types import UserError

COSTS: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "prompt tokens": ("prompt", count),
    "cached tokens": ("cached", count),
    "generated tokens": ("tokens", count),
    "sequences": ("sequences", partial(number, digits=1)),
    "time": ("seconds", duration),
    "keys and values, peak": ("kv", memory),
    "activations, peak": ("activations", memory),
}
"""Costs: column of the settings, and format."""

BY_PLACE = (ACCURACY, "coverage", VERDICTS)
"""Shares of the table by data set, and of its plot."""
GAIN = "gain of soft_reasoning over the best other method, points"
MOST_ROUNDS = 4
"""Rounds of proposals that the paper's termination table lists."""

NOTE = (
    "Values are means over draws (seeds), ± the standard deviation of several draws, with the 95 % interval "
    "(Wilson's score) for drawing other problems. All draws solve the same problems, unless dataset.seed "
    "differs. Bold: the paired interval of the difference from {reference} excludes 0, and p < 0.05."
)
DIFFERENCE_NOTE = (
    "Difference: accuracy minus that of {reference}, in points, on the n problems of both, with a paired "
    "bootstrap interval. p: paired permutation test (McNemar's for single runs), Holm-corrected for all rows "
    "with the same problems."
)
COST_NOTE = (
    "Tokens, sequences and time are per problem. Memory is the peak. Decided: the share of points that the "
    "acquisition function chose."
)


def finished_runs(folder: Path) -> list[Path]:
    """Return the folders of the finished runs below ``folder``, without those that only measured a budget."""
    runs = (path.parent for path in folder.rglob(RESULTS))
    return sorted(run for run in runs if run.parent.name != BUDGET_RUNS and run != folder)


def combine(folder: Path) -> None:
    """Write the page of the finished runs below ``folder``, which is a comparison's or a sweep's.

    Raises:
        UserError: If there is no finished run.
    """
    if not (folders := finished_runs(folder)):
        raise UserError(f"{folder}: expected finished runs, found none; see the output of its jobs")
    compare(folders, folder)


def compare(folders: Sequence[str | Path], folder: str | Path | None = None) -> dict[str, Table]:
    """Return tables of finished runs by the names of their files, with a row per setting.

    Runs that differ only in their seed share a row. Others are tested against the ``reference`` of the runs'
    configuration (:func:`find_reference`).

    Args:
        folders: Folders of finished runs.
        folder: Where to write ``comparison.md``, its tables as CSV and LaTeX, its plots and
            ``comparison.json``, a row per setting; two tables are printed, too. None writes nothing.

    Raises:
        UserError: If a folder holds no finished run.
    """
    settings = by_setting(read_runs([Path(path) for path in folders]))
    reference = find_reference(settings, settings["config"].iloc[0][0].get("reference"))
    settings = against(settings, reference)
    tables = build_tables(settings, reference)
    if folder is not None:
        notes = [NOTE.format(reference=reference), *_budgets(settings)]
        _write(settings, tables, notes, Path(folder))
    return tables


def share(row: Setting, name: str) -> str:
    """Format the share ``name`` of a row of the settings."""
    return estimate(*(row[f"{name}{part}"] for part in ("", " low", " high", " std")))


QUALITY: dict[str, Callable[[Setting], str]] = {
    **{f"{name} %": partial(share, name=name) for name in SHARES if name != VERDICTS},
    "difference": lambda row: f"{100 * row.difference:+.1f}" if row.n > 0 else row.versus,
    "95 % interval": lambda row: f"{percent(row.low)} to {percent(row.high)}" if row.n > 0 else "",
    "p": lambda row: "" if not row.n > 0 else "< 0.0001" if row.p < 1e-4 else f"{row.p:.4f}",
    "n": lambda row: count(row.n) if row.n > 0 else "",
}
"""The columns of the first table, with functions that format a row of the settings."""


def build_tables(settings: Frame, reference: str) -> dict[str, Table]:
    """Return the tables of ``settings`` (:func:`against`): shares, differences, rounds and costs."""
    quality = _table(settings, QUALITY, "Methods", DIFFERENCE_NOTE.format(reference=reference))
    bold = [(i, quality.columns.index("difference")) for i in np.flatnonzero(settings["shown"])]
    shown = {name: cost for name, cost in COSTS.items() if settings[cost[0]].notna().any()}
    costs: dict[str, Callable[[Setting], str]] = {
        name: lambda row, column=column, form=form: form(
            row[column] / (row.problems if column in TOTALS else 1)
        )
        for name, (column, form) in shown.items()
    }
    costs["decided %"] = lambda row: percent(row.decided)
    relative: dict[str, Callable[[Setting], str]] = {
        f"{name} %": lambda row, column=column: percent(row[column], digits=2)
        for name, (column, _) in shown.items()
    }
    ratios = _ratios(settings, reference, [column for column, _ in shown.values()])
    tables = {
        "comparison": replace(quality, bold=bold),
        "sweep": table_by_place(settings),
        "rounds": rounds_table(settings),
        "cost": _table(settings, costs, "Cost", COST_NOTE),
        "cost_relative": _table(ratios, relative, f"Cost relative to {reference}", "In percent."),
    }
    return {name: table for name, table in tables.items() if table and table.rows}


def _table(settings: Frame, columns: Mapping[str, Callable[[Setting], str]], title: str, note: str) -> Table:
    """A row for each setting; model, shots and data set are columns where they vary."""
    heads = [*(name for name in PLACE if settings[name].nunique() > 1), "label"]
    rows = [
        [*(str(row[name]) for name in heads), *(show(row) for show in columns.values())]
        for _, row in settings.iterrows()
    ]
    return Table([*heads[:-1], "method", *columns], rows, labels=len(heads), title=title, note=note)


def _ratios(settings: Frame, reference: str, columns: Sequence[str]) -> Frame:
    """Costs as shares of those of the reference in the same place."""
    costs = settings[[*PLACE, "label", *columns]]
    base = costs[costs["label"] == reference].drop(columns="label")
    pairs = costs.merge(base, on=PLACE, suffixes=("", " of the reference"))
    for column in columns:
        spent = pairs[f"{column} of the reference"]
        pairs[column] /= spent.where(spent > 0)
    return pairs[pairs["label"] != reference]


def shares_by_place(settings: Frame) -> Frame:
    """Return a row per setting and share: ``mean``, interval, text (``cell``), whether it is ``bold``."""
    parts = list[Frame]()
    for name in BY_PLACE:
        rows = settings[settings[name].notna()]
        if name == VERDICTS:  # compared where verifiers are, not where methods are
            rows = rows.loc[[" verifier=" in f" {label}" for label in rows["label"]]]
        ends = {"mean": rows[name], "low": rows[f"{name} low"], "high": rows[f"{name} high"]}
        cells = [share(row, name) for _, row in rows.iterrows()]
        bold = rows["shown"] & (rows["difference"] > 0) & (name == ACCURACY)
        columns = rows[[*PLACE, "position", "label", "method"]]
        parts.append(columns.assign(metric=name, **ends, cell=cells, bold=bold))
    return pd.concat(parts)


def table_by_place(settings: Frame) -> Table:
    """Return accuracy and coverage, a row for each setting and a column for each data set.

    With a single data set the columns are the metrics. Blocks of rows are by model, metric and number of
    shots, as in the paper, and a row has the gain of Soft Reasoning. An accuracy is bold if it is higher than
    the reference's by a difference that is shown.
    """
    frame = shares_by_place(settings)
    frame = pd.concat([frame, _gains(frame)])
    single = settings["data set"].nunique() == 1
    head = ["model", "shots"] if single else ["model", "metric", "shots"]
    for name in ("model", "metric"):  # in their order
        frame[name] = pd.Categorical(frame[name], frame[name].unique())
    frame = frame.sort_values([*head, "position"], kind="stable").astype({"model": str, "metric": str})
    frame["metric"] += " %"
    return replace(_wide(frame, head, "metric" if single else "data set"), title="By data set")


def _gains(frame: Frame) -> Frame:
    """Rows with the gain of the first ``soft_reasoning`` over the best other method, in points."""
    accuracy = frame[frame["metric"] == ACCURACY]
    ours = accuracy["method"] == PREFERRED
    gains = accuracy[ours].groupby(PLACE)["mean"].first() - accuracy[~ours].groupby(PLACE)["mean"].max()
    rows = (100 * gains.dropna()).rename("mean").reset_index()
    cells = rows["mean"].map("{:+.1f}".format)
    return rows.assign(cell=cells, label=GAIN, metric=ACCURACY, position=math.inf, bold=False)


def rounds_table(settings: Frame) -> Table | None:
    """Return the share of problems whose search ended after each round (paper, Table "llama-coverage").

    The first row of a block counts problems that ended with their first candidates, before any proposal.
    None if no method has a stopping rule.
    """
    rules = settings["config"].map(lambda configs: bool(configs[0].get("method", {}).get("stopping")))
    ended = {
        i: pd.DataFrame([run["rounds"]["share_ended_after"] for run in runs]).rename(columns=int)
        for i, runs in settings["results"][rules].items()
    }
    if not ended:
        return None
    rounds, rows = range(1, 1 + max(MOST_ROUNDS + 1, *map(max, ended.values()))), list[Json]()
    for i, shares in ended.items():
        shares = shares.reindex(columns=rounds).fillna(0.0)
        for n, mean, std in zip(rounds, shares.mean(), shares.std(), strict=True):
            name = "no proposal" if n == 1 else f"{n - 1} round{'s' * (n > 2)} of proposals"
            place = settings.loc[i, [*PLACE, "label"]]
            rows.append({**place, "ended after": name, "cell": estimate(mean, std=std), "bold": False})
    table = _wide(pd.DataFrame(rows), ["model", "shots", "label"], "data set", "ended after")
    return replace(table, title="Rounds to termination", note="Share of problems, in percent.")


def _wide(frame: Frame, head: Sequence[str], columns: str, last: str = "label") -> Table:
    """A table of a long ``frame`` by ``head`` and ``last``, without a model or shots common to all rows."""
    head = [name for name in head if name not in ("model", "shots") or frame[name].nunique() > 1]
    index = [*head, last]
    cells, bold = (
        frame.pivot_table(values, index, columns, aggfunc="first", sort=False) for values in ("cell", "bold")
    )
    blocks = [place[:-1] for place in cells.reset_index()[index].itertuples(index=False, name=None)]
    rules = [i for i in range(1, len(blocks)) if blocks[i] != blocks[i - 1]]
    marks = [(i, len(index) + j) for i, j in np.argwhere(bold.eq(True)).tolist()]
    rows = cells.fillna(MISSING).reset_index().rename(columns={"label": "method"}).astype(str)
    return Table([*rows.columns], rows.to_numpy().tolist(), labels=len(index), rules=rules, bold=marks)


def _budgets(settings: Frame) -> list[str]:
    """A note on the methods that had another's tokens under ``budget=equal``."""
    rows = [row for _, row in settings.iterrows() if row.config[0].get("budget") == "equal"]
    if not rows:
        return []
    first = default_reference({row.label: row.method for row in rows})
    samples: dict[str, set[int]] = {}
    for row in rows:
        if row.label != first and tokens_scale_with_samples(row.config[0]["method"]):
            samples.setdefault(row.label, set()).update(c["method"]["samples"] for c in row.config)
    matched = [f"{label} ({', '.join(map(str, sorted(n)))})" for label, n in samples.items()]
    return [
        f"Equal budget: samples were chosen to write as many tokens as {first} generates: "
        f"{', '.join(matched) or 'of no method'}. All others have a budget of their own."
    ]


def _write(settings: Frame, tables: Mapping[str, Table], notes: Sequence[str], folder: Path) -> None:
    """Write the page, tables, plots and a row per setting into ``folder``; print what is short."""
    first = "sweep" if settings["data set"].nunique() > 1 else "comparison"
    shown = [tables[name].text() for name in (first, "cost") if name in tables]
    print("\n\n".join(["", *shown, *notes, ""]))
    pictures: list[str] = []
    folder.mkdir(parents=True, exist_ok=True)
    if plots.available():
        pictures = draw(settings, folder)
    else:
        notes = [*notes, plots.MISSING]
    parts = ["# Comparison", *notes]
    for name, table in tables.items():
        save(table, folder, name)
        parts += [f"## {table.title}", table.markdown(), table.note]
    parts += [f"![{name}]({name})" for name in pictures]
    write_json(folder / "comparison.json", [_record(row) for _, row in settings.iterrows()])
    write_text(folder / COMPARISON, "\n\n".join(filter(None, parts)) + "\n")
    print(folder / COMPARISON)


def _record(row: Setting) -> Json:
    """A row of comparison.json, unrounded; what is unknown is null, and the reference has no difference."""
    shares = [
        f"{name}{part}" for name in SHARES if name != VERDICTS for part in ("", " low", " high", " std")
    ]
    values = {name: row[name] for name in shares} | {name: row[name] / row.problems for name in TOTALS}
    values |= {"kv": row.kv, "activations": row.activations, "decided": row.decided}
    if row.n > 0:
        values |= {name: row[name] for name in ("difference", "low", "high", "n", "p_uncorrected", "p")}
    return {
        "label": row.label,
        "model": row.model,
        "dataset": row["data set"],
        "shots": row.shots,
        "options": row.options,
        "folders": row.folder,
        "runs": int(row.runs),
        "curve": mean_curve(row.results),
        **{name: None if math.isnan(value) else float(value) for name, value in values.items()},
    }


def mean_curve(results: Sequence[Json]) -> list[tuple[float, float]]:
    """Return (tokens, accuracy) after each round, mean over runs; empty unless all accuracies are known."""
    curves = [run["after_each_round"] for run in results]
    rounds = [[c[min(n, len(c) - 1)] for c in curves] for n in range(max(map(len, curves))) if all(curves)]
    if any(point["accuracy"] is None for points in rounds for point in points):
        return []
    return [(fmean(p["tokens"] for p in points), fmean(p["accuracy"] for p in points)) for points in rounds]


def draw(settings: Frame, folder: Path) -> list[str]:
    """Draw all settings, and accuracy against tokens for each place; return the names of the files."""
    settings = settings[settings["accuracy"].notna()]
    if settings.empty:
        return []
    names = ["sweep.svg"]
    draw_sweep(settings, folder / names[0])
    places = settings.groupby(PLACE, sort=False)
    for place, there in places:
        if len(there) > 1:
            end = f"-{run_name(*map(str, place))}" if len(places) > 1 else ""
            names.append(f"accuracy_against_tokens{end}.svg")
            plots.accuracy_against_tokens([_record(row) for _, row in there.iterrows()], folder / names[-1])
    return names


def draw_sweep(settings: Frame, path: Path) -> None:
    """Plot the settings: a distribution over seeds, lines over a numeric option, or bars by setting."""
    if len(settings) == 1:
        shares = pd.Series([run.get("exact_match") for run in settings["results"].iloc[0]], dtype=float)
        plots.distribution((100 * shares.dropna()).tolist(), settings["label"].iloc[0], path)
        return
    options = pd.DataFrame([*settings["options"]], settings.index, dtype=object)
    at, name = settings["label"], None
    if len(options.columns) == 1 and options.iloc[:, 0].map(type).isin([int, float]).all():
        at, name = options.iloc[:, 0], options.columns[0]
    frame = shares_by_place(settings)
    frame = frame[frame["metric"] != VERDICTS]
    places = frame["label"].map(dict(zip(settings["label"], at, strict=True)))
    plots.sweep(frame.assign(at=places), path, name)
