"""Tables of a sweep: one row per setting, or the paper's layout over models, shots and data sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pandas as pd

from soft_reasoning.reports.cells import Cell, datasets_of
from soft_reasoning.reports.tables import (
    MISSING,
    Table,
    best,
    count,
    duration,
    memory,
    number,
    over_seeds,
    percent,
)
from soft_reasoning.types import UserError


@dataclass(frozen=True)
class Metric:
    """A share in tables, and its path in results.json."""

    name: str
    path: tuple[str, ...]


ACCURACY = Metric("accuracy", ("exact_match",))
COVERAGE = Metric("coverage", ("coverage",))
VERDICTS = Metric("verifier's accuracy, first round", ("verifier", "accuracy"))
SHARES = (ACCURACY, COVERAGE)
GAIN = "gain of soft_reasoning over the best other method, points"
ALL = "all"
MOST_ROUNDS = 4
"""Rounds of proposals that the paper's termination table lists."""

NOTE = (
    "Mean ± standard deviation over draws (seeds), which solve the same problems unless dataset.seed is one "
    "of them. For a single run, ± its standard error, that of drawing other problems."
)
ENGINE_NOTES = {
    "FakeEngine": "The fake engine wrote these answers, which say nothing about any model.",
    "VLLMEngine": "No memory is shown for vLLM, whose statistics tell none.",
}


def settings_table(cells: Sequence[Cell]) -> Table:
    """One row per setting of a sweep on the same problems by the same model."""
    keys = list(dict.fromkeys(key for cell in cells for key in cell.setting))
    metrics = metrics_of(cells)
    shares = [f"{metric.name} %" for metric in metrics]
    columns = [*keys, "runs", *shares, "rounds", "decided %", "generated tokens", "time"]
    rows = [
        [
            *(str(cell.setting.get(key)) for key in keys),
            str(len(cell.results)),
            *(_share(cell, metric) for metric in metrics),
            number(cell.mean("rounds", "mean")),
            percent(cell.mean("decided")),
            count(cell.mean("tokens", "total", "generated")),
            duration(cell.mean("seconds", "total")),
        ]
        for cell in cells
    ]
    if gains := _gains(cells, [cells[0].dataset]):
        filled = dict.fromkeys(columns, MISSING) | {columns[0]: GAIN, "accuracy %": gains[0]}
        rows.append([filled[name] for name in columns])
    bold = [
        (i, len(keys) + 1 + j)
        for j, metric in enumerate(metrics)
        for i in best([cell.mean(*metric.path) for cell in cells])
    ]
    return Table(columns, rows, labels=len(keys), bold=bold)


def grid_table(cells: Sequence[Cell]) -> Table:
    """Return the paper's layout: blocks by model, metric and shots, rows by setting, columns by data set."""
    datasets = datasets_of(cells)
    head = _heads(cells, "metric", "method")
    columns = [*head, *datasets]
    rows: list[list[str]] = []
    rules: list[int] = []
    bold: list[tuple[int, int]] = []
    for metric, block in _blocks(cells):
        first = len(rows)
        if first:
            rules.append(first)
        labels = list(dict.fromkeys(cell.label for cell in block))
        for label in labels:
            values = {"model": block[0].model, "metric": f"{metric.name} %", "shots": str(block[0].shots)}
            rows.append([(values | {"method": label})[name] for name in head])
        for place, dataset in enumerate(datasets, len(head)):
            by_label = {cell.label: cell for cell in block if cell.dataset == dataset}
            column = [by_label.get(label) for label in labels]
            for i, cell in enumerate(column):
                rows[first + i].append(MISSING if cell is None else _share(cell, metric))
            means = [None if cell is None else cell.mean(*metric.path) for cell in column]
            bold += [(first + i, place) for i in best(means)]
        gains = _gains(block, datasets) if metric is ACCURACY else []
        rows += [[*((values | {"method": GAIN})[name] for name in head), *gains]] if gains else []
    return Table(columns, rows, labels=len(head), rules=rules, bold=bold)


def _gains(block: Sequence[Cell], datasets: Sequence[str]) -> list[str]:
    """By data set, the accuracy of the first ``soft_reasoning`` less that of the best other method."""
    gains = []
    for dataset in datasets:
        known = [(cell.method, cell.mean(*ACCURACY.path)) for cell in block if cell.dataset == dataset]
        ours = [mean for method, mean in known if method == "soft_reasoning" and mean is not None]
        others = [mean for method, mean in known if method != "soft_reasoning" and mean is not None]
        gains.append(f"{100 * (ours[0] - max(others)):+.1f}" if ours and others else MISSING)
    return [] if set(gains) == {MISSING} else gains


def rounds_table(cells: Sequence[Cell]) -> Table | None:
    """Return the share of problems whose search ended after each round (paper, Table "llama-coverage").

    The first row of a block counts problems that ended on their first candidates, before any proposal. None
    where no method has a stopping rule.
    """
    searched = [cell for cell in cells if cell.configs[0].get("method", {}).get("stopping")]
    if not searched:
        return None
    datasets = datasets_of(searched)
    head = _heads(searched, "method", "ended after")
    rows: list[list[str]] = []
    rules: list[int] = []
    groups: dict[tuple[str, int, str], dict[str, Cell]] = {}
    for cell in searched:
        groups.setdefault((cell.model, cell.shots, cell.label), {})[cell.dataset] = cell
    for (model, shots, label), by_dataset in groups.items():
        rules += [len(rows)] if rows else []
        ended = {dataset: _ended(cell) for dataset, cell in by_dataset.items()}
        most = max(MOST_ROUNDS, *(frame.columns.max() for frame in ended.values()))
        for n in range(most + 1):
            name = "no proposal" if n == 0 else f"{n} round{'s' * (n > 1)} of proposals"
            values = {"model": model, "shots": str(shots), "method": label, "ended after": name}
            shares = [
                over_seeds(list(ended[d].get(n, 0.0 * ended[d].iloc[:, 0]))) if d in ended else MISSING
                for d in datasets
            ]
            rows.append([*(values[name] for name in head), *shares])
    return Table([*head, *datasets], rows, labels=len(head), rules=rules)


def _ended(cell: Cell) -> Any:
    """The share of problems that ended after n rounds of proposals: a row per run, a column for each n."""
    ended = pd.DataFrame([run["rounds"]["share_ended_after"] for run in cell.results]).fillna(0.0)
    return ended.rename(columns=lambda rounds: int(rounds) - 1)


def metrics_of(cells: Sequence[Cell]) -> tuple[Metric, ...]:
    """Return accuracy and coverage, and the verifiers' accuracy where a method has several of them."""
    verifiers: dict[tuple[Any, ...], set[str]] = {}
    for cell in cells:
        if cell.each(*VERDICTS.path):
            own = (cell.configs[0].get("verifier") or {}).items()
            known = verifiers.setdefault((cell.method, cell.place), set())
            known.add(repr(sorted((key, str(value)) for key, value in own if key != "max_new_tokens")))
    return (*SHARES, VERDICTS) if any(len(known) > 1 for known in verifiers.values()) else SHARES


def notes_of(cells: Sequence[Cell]) -> list[str]:
    """Return the notes under the tables."""
    engines = {cell.engine for cell in cells}
    return [NOTE, *(note for engine, note in ENGINE_NOTES.items() if engine in engines)]


def _heads(cells: Sequence[Cell], *names: str) -> list[str]:
    """The first columns: model and shots if there are several, and ``names``."""
    several = {
        "model": len({cell.model for cell in cells}) > 1,
        "shots": len({cell.shots for cell in cells}) > 1,
    }
    order = ["model", *names[:-1], "shots", names[-1]] if "metric" in names else ["model", "shots", *names]
    return [name for name in order if several.get(name, True)]


def _blocks(cells: Sequence[Cell]) -> Iterator[tuple[Metric, list[Cell]]]:
    """(metric, cells of one model and number of shots), without metrics that no run has."""
    for model in dict.fromkeys(cell.model for cell in cells):
        for metric in metrics_of(cells):
            for shots in dict.fromkeys(cell.shots for cell in cells if cell.model == model):
                block = [cell for cell in cells if (cell.model, cell.shots) == (model, shots)]
                if any(cell.each(*metric.path) for cell in block):
                    yield metric, sorted(block, key=lambda cell: cell.position)


def _share(cell: Cell, metric: Metric) -> str:
    return over_seeds(cell.each(*metric.path), cell.results[0].get(f"{metric.path[-1]}_stderr"))


COSTS: dict[str, tuple[tuple[str, ...], Callable[[float | None], str]]] = {
    "prompt tokens": (("tokens", "total", "prompt"), count),
    "generated tokens": (("tokens", "total", "generated"), count),
    "sequences": (("tokens", "total", "sequences"), count),
    "time": (("seconds", "total"), duration),
    "keys and values, peak": (("peak_bytes", "kv"), memory),
    "activations, peak": (("peak_bytes", "activations"), memory),
}
"""Costs (paper, Section "Efficiency and Performance Analysis"): path in results.json, and format."""


def cost_tables(cells: Sequence[Cell], reference: str | None) -> tuple[Table, Table, str] | None:
    """Return the cost of every setting on each data set, the same relative to ``reference``, and its label.

    The share over all data sets is that of their sums (memory: means), as in the paper. None if
    all cells are of one setting.

    Args:
        cells: The cells.
        reference: A cell's label; None takes ``soft_reasoning``, else the first.

    Raises:
        UserError: If the reference is none of the settings.
    """
    labels = list(dict.fromkeys(cell.label for cell in cells))
    if reference is not None and reference not in labels:
        raise UserError(f"reference: expected one of {', '.join(labels)}, got {reference}")
    if len(labels) < 2:
        return None
    base = reference or next((cell.label for cell in cells if cell.method == "soft_reasoning"), labels[0])
    index = ["model", "shots", "method", "data set"]
    values = [
        [cell.model, cell.shots, cell.label, cell.dataset, *(cell.mean(*path) for path, _ in COSTS.values())]
        for cell in cells
    ]
    costs = pd.DataFrame(values, columns=[*index, *COSTS]).set_index(index).astype(float)
    costs = costs.dropna(axis="columns", how="all")
    shares = []
    for place, spent in costs.groupby(index[:3], sort=False):
        model, shots, label = cast(tuple[str, int, str], place)
        if label == base or (model, shots, base) not in costs.index.droplevel(3):
            continue
        others = costs.xs((model, shots, base), level=(0, 1, 2))
        spent = spent.droplevel(index[:3])
        common = sorted(spent.index.intersection(others.index))
        ratios = spent.loc[common] / others.loc[common]
        if len(common) > 1:
            ratios.loc[ALL] = spent.loc[common].sum(skipna=False) / others.loc[common].sum(skipna=False)
        shares.append(pd.concat({place: ratios}, names=cast(Any, index[:3])))
    relative = pd.concat(shares) if shares else costs.iloc[:0]
    relative = relative.replace([math.inf, -math.inf], math.nan).dropna(axis="columns", how="all")
    plain = Table([*index, *costs.columns], _cells(costs, lambda name: COSTS[name][1]), labels=4)
    columns = [*index, *(f"{name} %" for name in relative.columns)]
    shown = _cells(relative, lambda _: partial(percent, digits=2))
    return plain, Table(columns, shown, labels=4), base


def _cells(frame: Any, show: Callable[[str], Callable[[float | None], str]]) -> list[list[str]]:
    """The rows of ``frame`` with their labels; ``show`` gives the format of a column."""
    return [
        [*map(str, place), *(show(name)(None if pd.isna(x) else x) for name, x in row.items())]
        for place, row in frame.iterrows()
    ]
