"""The tables of a sweep in the paper's layout, pivots of the frame of settings, and its plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from soft_reasoning.lab.reports import plots
from soft_reasoning.lab.reports.frame import PLACE, PREFERRED, VERDICTS, Frame, Row
from soft_reasoning.lab.reports.tables import MISSING, Table, estimate

ACCURACY = "accuracy"
METRICS = (ACCURACY, "coverage", VERDICTS)
"""Shares of the sweep's table."""
GAIN = "gain of soft_reasoning over the best other method, points"
MEAN_MODEL = "mean of {} models"
MOST_ROUNDS = 4
"""Rounds of proposals that the paper's termination table lists."""


def share(row: Row, name: str) -> str:
    """Format the share ``name`` of a row of the settings."""
    return estimate(*(row[f"{name}{part}"] for part in ("", " low", " high", " std")))


def shares(settings: Frame) -> Frame:
    """Return a row per setting and metric: ``mean``, interval, text (``cell``), whether it is ``bold``."""
    columns = [*PLACE, "position", "label", "method"]
    parts = []
    for metric in METRICS:
        rows = settings[settings[metric].notna()]
        if metric == VERDICTS:  # compared where verifiers are, not where methods are
            rows = rows.loc[[" verifier=" in f" {label}" for label in rows["label"]]]
        ends = {"mean": rows[metric], "low": rows[f"{metric} low"], "high": rows[f"{metric} high"]}
        cells = [share(row, metric) for _, row in rows.iterrows()]
        bold = rows["shown"] & (rows["difference"] > 0) & (metric == ACCURACY)
        parts.append(rows[columns].assign(metric=metric, **ends, cell=cells, bold=bold))
    return pd.concat(parts)


def sweep_table(settings: Frame) -> Table:
    """Return accuracy and coverage, a row for each setting and a column for each data set.

    With a single data set the columns are the metrics. Blocks of rows are by model, metric and number of
    shots, as in the paper, and a row has the gain of Soft Reasoning. An accuracy is bold if it is higher than
    the reference's by a difference that is shown.
    """
    frame = shares(settings)
    frame = cast(Any, pd.concat([frame, _gains(frame)]))
    frame["metric"] = pd.Categorical(frame["metric"], [*METRICS])
    single = frame["data set"].nunique() == 1
    head = ["model", "shots"] if single else ["model", "metric", "shots"]
    frame = frame.sort_values([*head, "position"], kind="stable")
    frame = pd.concat([frame, _mean_gains(frame)])
    frame["metric"] = frame["metric"].astype(str) + " %"
    return _wide(frame, head, "metric" if single else "data set")


def _gains(frame: Frame) -> Frame:
    """Rows with the gain of the first ``soft_reasoning`` over the best other method, in points."""
    accuracy = frame[frame["metric"] == ACCURACY]
    ours = accuracy["method"] == PREFERRED
    gains = accuracy[ours].groupby(PLACE)["mean"].first() - accuracy[~ours].groupby(PLACE)["mean"].max()
    return _gain_rows((100 * gains.dropna()).rename("mean").reset_index())


def _mean_gains(frame: Frame) -> Frame:
    """Rows with the mean of the gains over the models, if several have one."""
    gains = frame[frame["label"] == GAIN]
    models = gains["model"].nunique()
    means = gains.groupby(["shots", "data set"], sort=False)["mean"].mean().reset_index()
    return _gain_rows(means.assign(model=MEAN_MODEL.format(models)) if models > 1 else gains.iloc[:0])


def _gain_rows(rows: Frame) -> Frame:
    cells = rows["mean"].map("{:+.1f}".format)
    return rows.assign(cell=cells, label=GAIN, metric=ACCURACY, position=math.inf, bold=False)


def rounds_table(settings: Frame) -> Table | None:
    """Return the share of problems whose search ended after each round (paper, Table "llama-coverage").

    The first row of a block counts problems that ended with their first candidates, before any proposal.
    None if no method has a stopping rule.
    """
    searched = settings[
        [bool(configs[0].get("method", {}).get("stopping")) for configs in settings["config"]]
    ]
    if searched.empty:
        return None
    ended = [
        pd.DataFrame([run["rounds"]["share_ended_after"] for run in runs]).rename(columns=int).fillna(0.0)
        for runs in searched["results"]
    ]
    rounds = range(1, 1 + max(MOST_ROUNDS + 1, *(max(table) for table in ended)))
    rows = []
    for (_, row), table in zip(searched.iterrows(), ended, strict=True):
        table = cast(Any, table.reindex(columns=rounds, fill_value=0.0))
        for n, mean, std in zip(rounds, table.mean(), table.std(), strict=True):
            name = "no proposal" if n == 1 else f"{n - 1} round{'s' * (n > 2)} of proposals"
            rows.append({**row[[*PLACE, "label"]], "ended after": name, "cell": estimate(mean, std=std)})
    table = _wide(
        pd.DataFrame(rows).assign(bold=False), ["model", "shots", "label"], "data set", "ended after"
    )
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


def draw_sweep(settings: Frame, path: Path) -> None:
    """Plot a sweep: a distribution over seeds, lines over a numeric option, or bars by setting."""
    if len(settings) == 1:
        if values := plots.accuracies(settings["results"].iloc[0]):
            plots.distribution(values, settings["label"].iloc[0], path)
        return
    keys = {key for options in settings["options"] for key in options}
    values = (
        [value for options in settings["options"] for value in options.values()] if len(keys) == 1 else []
    )
    number = len(set(values)) > 1 and all(type(value) in (int, float) for value in values)
    at = dict(zip(settings["label"], values if number else settings["label"], strict=True))
    frame = shares(settings)
    frame = frame[frame["metric"] != VERDICTS]
    plots.sweep(frame.assign(at=frame["label"].map(at)), path, keys.pop() if number else None)
