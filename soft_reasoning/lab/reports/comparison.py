"""The page of a comparison or a sweep: a row per setting with paired differences, costs and plots."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pandas as pd

from soft_reasoning.lab.reports import plots
from soft_reasoning.lab.reports.frame import (
    PLACE,
    SHARES,
    TOTALS,
    VERDICTS,
    Frame,
    Row,
    against,
    by_setting,
    equal_to,
    find_reference,
    read_runs,
)
from soft_reasoning.lab.reports.report import one_text
from soft_reasoning.lab.reports.sweep import draw_sweep, rounds_table, share, sweep_table
from soft_reasoning.lab.reports.tables import (
    Table,
    count,
    duration,
    memory,
    number,
    percent,
    rough,
    save,
)
from soft_reasoning.lab.runs.files import (
    COMPARISON,
    MANIFEST,
    PROBES,
    RESULTS,
    SWEEP,
    read_json,
    write_json,
    write_text,
    writing,
)
from soft_reasoning.lab.runs.manifest import method_name, tokens_scale_with_samples
from soft_reasoning.lab.runs.naming import run_name
from soft_reasoning.types import UserError

QUALITY: dict[str, Callable[[Row], str]] = {
    **{f"{name} %": lambda row, name=name: share(row, name) for name in SHARES if name != VERDICTS},
    "difference": lambda row: f"{100 * row.difference:+.1f}" if row.n > 0 else row.versus,
    "95 % interval": lambda row: f"{percent(row.low)} to {percent(row.high)}" if row.n > 0 else "",
    "p": lambda row: "" if not row.n > 0 else "< 0.0001" if row.p < 1e-4 else f"{row.p:.4f}",
    "n": lambda row: count(row.n) if row.n > 0 else "",
}
"""The columns of the first table, with functions that format a row of the settings."""
COSTS: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "prompt tokens": ("prompt", count),
    "cached tokens": ("cached", count),
    "generated tokens": ("tokens", count),
    "sequences": ("sequences", partial(number, digits=1)),
    "time": ("seconds", duration),
    "operations": ("flops", rough),
    "keys and values, peak": ("kv", memory),
    "activations, peak": ("activations", memory),
}
"""Costs: column of the settings, and format."""

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
    "Tokens, sequences, time and (floating-point) operations are per problem. Memory is the peak. "
    "Decided: the share of points that the acquisition function chose."
)
RELATIVE_NOTE = "In percent. A cell over all data sets is the ratio of their sums."
ENGINE_NOTES = {
    "FakeEngine": "The fake engine wrote these answers, which say nothing about any model.",
    "VLLMEngine": "No memory is shown for vLLM, whose statistics do not report it.",
}
ALIKE = (
    "The soft token has little effect, so raise embedding.sigma or place it last: for most questions nearly "
    "all candidates are the same text under "
)
NAMED = 3
"""Maximum number of settings that a note names."""


def finished_runs(folder: Path) -> list[Path]:
    """Return the folders of the finished runs below ``folder``, without those that only measured a budget."""
    runs = (path.parent for path in folder.rglob(RESULTS))
    return sorted(run for run in runs if run.parent.name != PROBES and run != folder)


def combine(folder: Path, *, strict: bool = True) -> None:
    """Write the page of the finished runs below ``folder``, which is a comparison's or a sweep's.

    Raises:
        UserError: If there is no finished run, or as :func:`compare`.
    """
    if not (folders := finished_runs(folder)):
        raise UserError(f"{folder}: expected finished runs, found none; see the output of its jobs")
    configs = [read_json(run / MANIFEST)["config"] for run in folders]
    methods = all(
        config.get("methods") and run.parent == folder for config, run in zip(configs, folders, strict=True)
    )
    compare(folders, folder, page=COMPARISON if methods else SWEEP, strict=strict)


def compare(
    folders: Sequence[str | Path],
    folder: str | Path | None = None,
    *,
    page: str = COMPARISON,
    strict: bool = True,
) -> dict[str, Table]:
    """Return tables of finished runs by the names of their files, with a row per setting.

    Runs that differ only in their seed share a row. Others are tested against the ``reference`` of the runs'
    configuration, or its default (:func:`frame.find_reference`).

    Args:
        folders: Folders of finished runs.
        folder: Where to write the page, the tables as CSV and LaTeX, the plots and ``comparison.json``, a row
            per setting; most tables are printed, too. None writes nothing.
        page: The name of the page. With ``sweep.md`` come a table in the paper's layout and ``sweep.json``, a
            row per run.
        strict: As of :func:`frame.find_reference`.

    Raises:
        UserError: If a folder holds no finished run, or ``reference`` names no setting.
    """
    settings = by_setting(read_runs([Path(path) for path in folders]))
    reference = find_reference(settings, strict=strict)
    settings = against(settings, reference)
    tables = build_tables(settings, reference, sweep=page == SWEEP)
    if folder is not None:
        _write(settings, tables, build_notes(settings, reference), Path(folder), page)
    return tables


def build_tables(settings: Frame, reference: str, *, sweep: bool) -> dict[str, Table]:
    """Return the tables of ``settings`` (:func:`frame.against`): shares, differences, rounds and costs."""
    rows = [row for _, row in settings.iterrows()]
    shown = {name: cost for name, cost in COSTS.items() if settings[cost[0]].notna().any()}
    costs: dict[str, Callable[[Row], str]] = {
        name: partial(_cost, column=column, form=form) for name, (column, form) in shown.items()
    }
    costs["decided %"] = lambda row: percent(row.decided)
    relative = {f"{name} %": partial(_relative, column=column) for name, (column, _) in shown.items()}
    pairs = _with_reference(settings, reference, [column for column, _ in shown.values()])
    difference = DIFFERENCE_NOTE.format(reference=reference)
    quality = _table(settings, QUALITY, f"Differences from {reference}", difference)
    shown_rows = [i for i, row in enumerate(rows) if row.shown]
    tables = {
        "sweep": sweep_table(settings) if sweep else None,
        "comparison": replace(quality, bold=[(i, quality.columns.index("difference")) for i in shown_rows]),
        "rounds": rounds_table(settings),
        "cost": _table(settings, costs, "Cost", COST_NOTE),
        "cost_relative": _table(pairs, relative, f"Cost relative to {reference}", RELATIVE_NOTE),
    }
    return {name: table for name, table in tables.items() if table and table.rows}


def _table(
    settings: Frame, columns: Mapping[str, Callable[[Row], str]], title: str = "", note: str = ""
) -> Table:
    """A row for each setting; model, shots and data set are columns where they vary."""
    heads = [*(name for name in PLACE if settings[name].nunique() > 1), "label"]
    rows = [
        [*(str(row[name]) for name in heads), *(show(row) for show in columns.values())]
        for _, row in settings.iterrows()
    ]
    return Table([*heads[:-1], "method", *columns], rows, labels=len(heads), title=title, note=note)


def _cost(row: Row, *, column: str, form: Callable[[float | None], str]) -> str:
    """Format a cost: a total per problem, memory as it is."""
    value = row[column] / row.problems if column in TOTALS else row[column]
    return form(None if math.isnan(value) else value)


def _relative(row: Row, *, column: str) -> str:
    base = row[f"{column} of the reference"]
    return percent(row[column] / base if base else math.nan, digits=2)


def _with_reference(settings: Frame, reference: str, columns: Sequence[str]) -> Frame:
    """The other settings next to the ``reference``, and sums over the data sets that every method has."""
    costs = settings[[*PLACE, "label", *columns]]
    labels = costs.groupby(["model", "shots"])["label"]
    complete = costs[costs.groupby(PLACE)["label"].transform("size") == labels.transform("nunique")]
    spent = complete.groupby(["model", "shots", "label"], as_index=False, sort=False)
    sums = spent[[*columns]].agg(lambda column: column.sum(skipna=False)).assign(**{"data set": "all"})
    costs = pd.concat([costs, sums[spent.size()["size"] > 1]])
    base: Frame = costs[costs["label"] == reference].drop(columns="label")
    pairs: Frame = costs.merge(base, on=PLACE, suffixes=("", " of the reference"))
    return pairs[pairs["label"] != reference]


def _write(
    settings: Frame, tables: Mapping[str, Table], notes: Sequence[str], folder: Path, page: str
) -> None:
    """Write the page, tables, plots, and rows of settings and runs into ``folder``; print what is short."""
    shown = [table.text() for name, table in tables.items() if name in ("sweep", "comparison", "cost")]
    print("\n\n".join(["", *shown, *notes, ""]))
    rows = [row for _, row in settings.iterrows()]
    pictures: list[str] = []
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if plots.available():
            pictures = draw(settings, folder, sweep=page == SWEEP)
        else:
            notes = [*notes, plots.MISSING]
    for name, table in tables.items():
        save(table, folder, name)
    first, *others = tables.values()
    notes = [*notes, *([] if page == SWEEP else [first.note])]
    parts = [f"# {page.partition('.')[0].capitalize()}", first.markdown(), *notes]
    for table in others:
        parts += [f"## {table.title}", table.note, table.markdown()]
    parts += [f"![{name}]({name})" for name in pictures]
    write_json(folder / "comparison.json", [_record(row) for row in rows])
    if page == SWEEP:
        write_json(folder / "sweep.json", [run for row in rows for run in _run_records(row)])
    write_text(folder / page, "\n\n".join(parts) + "\n")
    print(folder / page)


def _run_records(row: Row) -> list[dict[str, Any]]:
    """The rows of sweep.json: for each run of a setting its folder, options and results."""
    place = {"model": row.model, "dataset": row["data set"], "shots": row.shots}
    runs = zip(row.folder, row.seed, row.results, strict=True)
    return [
        {"folder": folder, **place, **row.options, "seed": seed, **results} for folder, seed, results in runs
    ]


def _record(row: Row) -> dict[str, Any]:
    """A row of comparison.json, unrounded; what is unknown is null, and the reference has no difference."""
    shares = [
        f"{name}{part}" for name in SHARES if name != VERDICTS for part in ("", " low", " high", " std")
    ]
    values = {name: row[name] for name in shares} | {name: row[name] / row.problems for name in TOTALS}
    values |= {"kv": row.kv, "activations": row.activations, "decided": row.decided}
    if row.n > 0:
        values |= {name: row[name] for name in ("difference", "low", "high", "n", "p_uncorrected", "p")}
    place = {"model": row.model, "dataset": row["data set"], "shots": row.shots}
    known = {name: None if math.isnan(value) else float(value) for name, value in values.items()}
    return {"label": row.label, **place, "runs": int(row.runs), "curve": mean_curve(row), **known}


def mean_curve(row: Row) -> list[tuple[float, float]]:
    """(tokens, accuracy) after each round, mean over runs; empty unless all accuracies are known."""
    curves = [results["after_each_round"] for results in row.results]
    rounds = [[c[min(n, len(c) - 1)] for c in curves] for n in range(max(map(len, curves))) if all(curves)]
    if any(point["accuracy"] is None for points in rounds for point in points):
        return []
    return [(fmean(p["tokens"] for p in points), fmean(p["accuracy"] for p in points)) for points in rounds]


def draw(settings: Frame, folder: Path, *, sweep: bool) -> list[str]:
    """Draw a sweep, and accuracy against tokens for each place; return the names of the files."""
    names: list[str] = []
    if sweep and settings["accuracy"].notna().any():
        draw_sweep(settings, folder / "sweep.svg")
        names.append("sweep.svg")
    places = settings[settings["accuracy"].notna()].groupby(PLACE, sort=False)
    for place, there in places:
        if len(there) > 1:
            end = f"-{run_name(*map(str, place))}" if len(places) > 1 else ""
            names.append(f"accuracy_against_tokens{end}.svg")
            plots.accuracy_against_tokens([_record(row) for _, row in there.iterrows()], folder / names[-1])
    return names


def build_notes(settings: Frame, reference: str) -> list[str]:
    """The notes under the tables."""
    notes = [NOTE.format(reference=reference), *_budgets(settings), *_distribution(settings)]
    notes += [note for engine, note in ENGINE_NOTES.items() if engine in [*settings["engine"]]]
    alike = [row.label for _, row in settings.iterrows() if one_text(row.config[0], row.one_text)]
    if labels := [*dict.fromkeys(alike)]:
        others = [f"{len(labels) - NAMED} other settings"] if len(labels) > NAMED else []
        notes.append(f"{ALIKE}{'; '.join([*labels[:NAMED], *others])}.")
    return notes


def _distribution(settings: Frame) -> list[str]:
    """Mean, deviation and range of the accuracies of a sweep over seeds or projections only."""
    values = plots.accuracies(settings["results"].iloc[0])
    if len(settings) > 1 or len(values) < 2:
        return []
    seeds = {(config.get("embedding") or {}).get("seed") for config in settings["config"].iloc[0]}
    text = f"Accuracy over {len(values)} {'projections' if len(seeds) > 1 else 'seeds'}"
    return [f"{text}: {plots.distribution_note(values)}, median {median(values):.1f} %."]


def _budgets(settings: Frame) -> list[str]:
    """A note on the methods that had another's tokens under ``budget=equal``."""
    runs = [(row.label, config) for _, row in settings.iterrows() for config in row.config]
    equal = [(label, config) for label, config in runs if config.get("budget") == "equal"]
    if not equal:
        return []
    first = equal_to({config.get("label") or label: method_name(config) for label, config in equal})
    others = [(label, config["method"]) for label, config in equal if (config.get("label") or label) != first]
    samples: dict[str, set[int]] = {label: set() for label, _ in others}
    for label, method in others:
        if tokens_scale_with_samples(method):
            samples[label].add(method["samples"])
    matched = [f"{label} ({', '.join(map(str, sorted(n)))})" for label, n in samples.items() if n]
    return [
        f"Equal budget: samples were chosen to write as many tokens as {first} generates: "
        f"{', '.join(matched) or 'of no method'}. With a budget of their own: "
        f"{', '.join(label for label, n in samples.items() if not n) or 'none'}."
    ]
