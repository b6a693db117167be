"""Tables of a sweep: rows by setting, columns by data set or by metric, in the paper's layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from soft_reasoning.lab.reports import plots
from soft_reasoning.lab.reports.report import one_text
from soft_reasoning.lab.reports.run_groups import RunGroup
from soft_reasoning.lab.reports.tables import MISSING, Table, count, duration, memory, over_seeds, percent

ACCURACY = "accuracy"
VERDICTS = "verifier's accuracy, first round"
METRICS = {ACCURACY: ("exact_match",), "coverage": ("coverage",), VERDICTS: ("verifier", "accuracy")}
"""Shares of a table, by their path in results.json."""
OURS = "soft_reasoning"
GAIN = "gain of soft_reasoning over the best other method, points"
MEAN_MODEL = "mean of {} models"
ALL = "all"
MOST_ROUNDS = 4
"""Rounds of proposals that the paper's termination table lists."""

NOTE = (
    "Mean ± standard deviation over draws (seeds), which solve the same problems unless dataset.seed is one "
    "of them. For a single run, ± its standard error, that of drawing other problems."
)
ENGINE_NOTES = {
    "FakeEngine": "The fake engine wrote these answers, which say nothing about any model.",
    "VLLMEngine": "No memory is shown for vLLM, whose statistics do not report it.",
}
ALIKE = (
    "Nearly all candidates of most questions are one text, so the soft token hardly acts (raise "
    "embedding.sigma, or place it last), under "
)
NAMED = 3
"""Maximum number of settings that a note names."""

PLACE = ["model", "shots", "data set"]
COST_LABELS = ["model", "shots", "method", "data set"]


def build_notes(groups: Sequence[RunGroup]) -> list[str]:
    """Return the notes under the tables."""
    engines = {group.engine for group in groups}
    notes = [NOTE, *(note for engine, note in ENGINE_NOTES.items() if engine in engines)]
    alike = [group.label for group in groups if one_text(group.configs[0], group.mean("one_text"))]
    if labels := [*dict.fromkeys(alike)]:
        others = [f"{len(labels) - NAMED} other settings"] if len(labels) > NAMED else []
        notes.append(f"{ALIKE}{'; '.join([*labels[:NAMED], *others])}.")
    return notes


def build_tables(groups: Sequence[RunGroup], reference: RunGroup) -> dict[str, Table]:
    """Return the tables of a sweep by the name of their files: shares, rounds, and costs, also relative."""
    tables = {"sweep": sweep_table(groups)}
    if (rounds := rounds_table(groups)) is not None:
        tables["rounds"] = rounds
    return tables | cost_tables(groups, reference.label)


def shares(groups: Sequence[RunGroup]) -> Any:
    """Return a row for each group and metric: place, method, ``mean``, ``error`` and the text ``cell``.

    ``error`` is the standard deviation over seeds, or a single run's standard error.
    """
    rows = []
    for metric, path in METRICS.items():
        for group in groups:
            values = pd.Series(group.each(*path))
            if values.empty or (metric == VERDICTS and " verifier=" not in f" {group.label}"):
                continue
            stderr = group.results[0].get(f"{path[-1]}_stderr")
            error = values.std() if len(values) > 1 else stderr
            shown = over_seeds(values.tolist(), stderr)
            place = (group.model, group.shots, group.dataset)
            setting = (group.position, group.label, group.method)
            rows.append((*place, *setting, metric, values.mean(), error, shown))
    columns = [*PLACE, "position", "method", "name", "metric", "mean", "error", "cell"]
    return pd.DataFrame(rows, columns=columns)


def sweep_table(groups: Sequence[RunGroup]) -> Table:
    """Return accuracy and coverage, a row for each setting and a column for each data set.

    With a single data set the columns are the metrics. Blocks of rows are by model, metric and number of
    shots, as in the paper; the best of a block is bold, and a row has the gain of Soft Reasoning.
    """
    frame = shares(groups)
    means = frame.groupby([*PLACE, "metric"])["mean"]
    frame["bold"] = (frame["mean"] == means.transform("max")) & (means.transform("nunique") > 1)
    frame = cast(Any, pd.concat([frame, _gains(frame)]))
    frame["metric"] = pd.Categorical(frame["metric"], [*METRICS])
    single = frame["data set"].nunique() == 1
    head = ["model", "shots"] if single else ["model", "metric", "shots"]
    frame = frame.sort_values([*head, "position"], kind="stable")
    frame = pd.concat([frame, _mean_gains(frame)])
    frame["metric"] = frame["metric"].astype(str) + " %"
    return replace(_wide(frame, head, "metric" if single else "data set"), note=" ".join(build_notes(groups)))


def _gains(frame: Any) -> Any:
    """Rows with the gain of the first ``soft_reasoning`` over the best other method, in points."""
    accuracy = frame[frame["metric"] == ACCURACY]
    ours = accuracy["name"] == OURS
    gains = accuracy[ours].groupby(PLACE)["mean"].first() - accuracy[~ours].groupby(PLACE)["mean"].max()
    return _gain_rows((100 * gains.dropna()).rename("mean").reset_index())


def _mean_gains(frame: Any) -> Any:
    """Rows with the mean of the gains over the models, if several have one."""
    gains = frame[frame["method"] == GAIN]
    models = gains["model"].nunique()
    means = gains.groupby(["shots", "data set"], sort=False)["mean"].mean().reset_index()
    return _gain_rows(means.assign(model=MEAN_MODEL.format(models)) if models > 1 else gains.iloc[:0])


def _gain_rows(rows: Any) -> Any:
    cells = rows["mean"].map("{:+.1f}".format)
    return rows.assign(cell=cells, method=GAIN, metric=ACCURACY, position=math.inf, bold=False)


def rounds_table(groups: Sequence[RunGroup]) -> Table | None:
    """Return the share of problems whose search ended after each round (paper, Table "llama-coverage").

    The first row of a block counts problems that ended with their first candidates, before any proposal.
    None if no method has a stopping rule.
    """
    searched = [group for group in groups if group.configs[0].get("method", {}).get("stopping")]
    if not searched:
        return None
    ends = [int(n) for group in searched for run in group.results for n in run["rounds"]["share_ended_after"]]
    rows = []
    for group in searched:
        ended = [run["rounds"]["share_ended_after"] for run in group.results]
        for n in range(max(MOST_ROUNDS + 1, *ends)):
            name = "no proposal" if n == 0 else f"{n} round{'s' * (n > 1)} of proposals"
            share = over_seeds([run.get(str(n + 1), 0.0) for run in ended])
            rows.append((group.model, group.shots, group.dataset, group.label, name, n, share))
    frame = pd.DataFrame(rows, columns=[*PLACE, "method", "ended after", "round", "cell"])
    order = [[group.label for group in groups].index(label) for label in frame["method"]]
    frame = frame.assign(order=order, bold=False).sort_values(["model", "shots", "order", "round"])
    table = _wide(frame, ["model", "shots", "method"], "data set", last="ended after")
    return replace(table, title="Rounds to termination", note="Share of problems, in percent.")


def _wide(frame: Any, head: Sequence[str], columns: str, last: str = "method") -> Table:
    """A table of a long ``frame`` by ``head`` and ``last``, without a model or shots common to all rows."""
    head = [name for name in head if name not in ("model", "shots") or frame[name].nunique() > 1]
    index = [*head, last]
    cells, bold = (
        frame.pivot_table(values, index, columns, aggfunc="first", sort=False) for values in ("cell", "bold")
    )
    blocks = [place[:-1] for place in cells.reset_index()[index].itertuples(index=False, name=None)]
    rules = [i for i in range(1, len(blocks)) if blocks[i] != blocks[i - 1]]
    marks = [(i, len(index) + j) for i, j in np.argwhere(bold.eq(True)).tolist()]
    rows = cells.fillna(MISSING).reset_index().astype(str)
    return Table([*rows.columns], rows.to_numpy().tolist(), labels=len(index), rules=rules, bold=marks)


COSTS: dict[str, tuple[tuple[str, ...], Callable[[float | None], str]]] = {
    "prompt tokens": (("tokens", "total", "prompt"), count),
    "generated tokens": (("tokens", "total", "generated"), count),
    "sequences": (("tokens", "total", "sequences"), count),
    "time": (("seconds", "total"), duration),
    "keys and values, peak": (("peak_bytes", "kv"), memory),
    "activations, peak": (("peak_bytes", "activations"), memory),
}
"""Costs (paper, Section "Efficiency and Performance Analysis"): path in results.json, and format."""


def cost_tables(groups: Sequence[RunGroup], reference: str) -> dict[str, Table]:
    """Return the ``cost`` of every setting on each data set, and ``cost_relative`` to ``reference``.

    The share over all data sets is the ratio of sums (memory: means) over the data sets that every method
    has, as in the paper. No table is returned if all groups have the same setting.

    Args:
        groups: The groups.
        reference: The label of one of them.
    """
    if len({group.label for group in groups}) < 2:
        return {}
    values = [
        [
            group.model,
            group.shots,
            group.label,
            group.dataset,
            *(group.mean(*path) for path, _ in COSTS.values()),
        ]
        for group in groups
    ]
    costs = pd.DataFrame(values, columns=[*COST_LABELS, *COSTS]).astype(dict.fromkeys(COSTS, float))
    methods = costs.groupby(["model", "shots"])["method"]
    complete = costs[costs.groupby(PLACE)["method"].transform("size") == methods.transform("nunique")]
    spent = complete.groupby(["model", "shots", "method"], as_index=False, sort=False)
    totals = spent[[*COSTS]].agg(lambda column: column.sum(skipna=False)).assign(**{"data set": ALL})
    all_costs = pd.concat([costs, totals[spent.size()["size"] > 1]])
    reference_costs = cast(Any, all_costs[all_costs["method"] == reference])
    relative = cast(Any, all_costs.merge(reference_costs, on=PLACE, suffixes=("", " of the reference")))
    relative = relative[relative["method"] != reference].copy()
    for name in COSTS:
        relative[name] /= relative[f"{name} of the reference"].replace(0.0, math.nan)
    plain = _costs(costs, {name: show for name, (_, show) in COSTS.items()})
    tables = {
        "cost": replace(plain, title="Cost", note="Totals of a run over its problems, mean over draws."),
        "cost_relative": replace(
            _costs(relative, dict.fromkeys(COSTS, partial(percent, digits=2)), " %"),
            title=f"Cost relative to {reference}",
            note="In percent.",
        ),
    }
    return {name: table for name, table in tables.items() if table.rows}


def _costs(frame: Any, formats: Mapping[str, Callable[[float | None], str]], unit: str = "") -> Table:
    """The measured costs, a row for each setting and data set."""
    names = [name for name in formats if frame[name].notna().any()]
    rows = []
    for _, row in frame.iterrows():
        values = (formats[name](None if pd.isna(row[name]) else row[name]) for name in names)
        rows.append([*map(str, row[COST_LABELS]), *values])
    return Table([*COST_LABELS, *(name + unit for name in names)], rows, labels=len(COST_LABELS))


def draw_sweep(groups: Sequence[RunGroup], path: Path) -> None:
    """Plot a sweep: a distribution over seeds, lines over a numeric option, or bars by setting."""
    if len(groups) == 1:
        if values := accuracies(groups[0]):
            plots.distribution(values, groups[0].label, path)
        return
    keys = {key for group in groups for key in group.setting}
    values = [value for group in groups for value in group.setting.values()] if len(keys) == 1 else []
    number = len(set(values)) > 1 and all(type(value) in (int, float) for value in values)
    frame = shares(groups)
    frame = frame[frame["metric"] != VERDICTS]
    value_by_label = dict(zip((group.label for group in groups), values, strict=True)) if number else {}
    at = frame["method"].map(value_by_label) if number else frame["method"]
    plots.sweep(frame.assign(at=at), path, keys.pop() if number else None)


def accuracies(group: RunGroup) -> list[float]:
    """The accuracy of each run, in percent."""
    return [100 * value for value in group.each(*METRICS[ACCURACY])]
