"""Finished runs as a data frame: a row per run, from it a row per setting, and paired differences.

The runs of a setting differ only in their seeds. All tables and plots of comparisons and sweeps are pivots of
the frame of settings.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

import pandas as pd

from soft_reasoning.lab.reports.report import graded
from soft_reasoning.lab.reports.statistics import holm, paired_bootstrap, paired_permutation, wilson
from soft_reasoning.lab.reports.tables import MISSING
from soft_reasoning.lab.runs.files import MANIFEST, RESULTS, read_json
from soft_reasoning.lab.runs.manifest import flatten, method_name, setting_keys
from soft_reasoning.lab.runs.naming import compared_methods
from soft_reasoning.lab.runs.records import COVERAGE_AT, MEMORY, read_outcomes
from soft_reasoning.types import UserError

Frame: TypeAlias = Any
Row: TypeAlias = Any
"""Types of pandas, whose annotations lack the type of a column."""

PLACE = ["model", "shots", "data set"]
"""Settings in the same place can be compared problem by problem."""
VERDICTS = "verifier's accuracy, first round"
SHARES = {
    "accuracy": "exact_match",
    "coverage": "coverage",
    f"coverage@{COVERAGE_AT}": f"coverage@{COVERAGE_AT}",
    f"pass@{COVERAGE_AT}": f"pass@{COVERAGE_AT}",
    VERDICTS: "verifier.accuracy",
}
TOTALS = {
    "prompt": "tokens.total.prompt",
    "cached": "tokens.total.cached",
    "tokens": "tokens.total.generated",
    "sequences": "tokens.total.sequences",
    "seconds": "seconds.total",
    "flops": "flops.total",
}
OTHERS = {"problems": "problems", "decided": "decided", "one_text": "one_text"}
PEAKS = {kind: f"peak_bytes.{kind}" for kind in MEMORY}
"""Columns by their keys in results.json: means over runs, and the most of all runs."""

PREFERRED = "soft_reasoning"
"""The method of the default reference."""
CHOSEN_FIRST = ("label", "method"), ("experiment", "preset")
"""Columns that decide others, before the choices of single groups."""
PLACES_OF = {"method", "model", "dataset", "model.path", "dataset.name", "dataset.shots", "method.name"}
"""Options that have columns of their own."""


def read_runs(folders: Sequence[Path]) -> Frame:
    """Return a row per finished run, by model, shots, data set, entry of ``methods`` and values of options.

    ``options`` are those that differ between the runs of a place, and ``label`` is their text. ``position``
    is the index of the run's entry in ``methods=[...]``.

    Raises:
        UserError: If there is no folder, or one holds no finished run.
    """
    if not folders:
        raise UserError("expected at least one run's folder, got none")
    manifests, results = ([read_json(folder / name) for folder in folders] for name in (MANIFEST, RESULTS))
    configs = [manifest["config"] for manifest in manifests]
    flat = [flatten(config) for config in configs]
    runs: Frame = pd.DataFrame(
        {
            "model": _short_names([config.get("model.path") for config in flat]),
            "shots": [int(config.get("dataset.shots") or 0) for config in flat],  # the bundled data have none
            "data set": _dataset_names(flat),
            "method": [method_name(config) for config in configs],
            "position": [_position(config) for config in configs],
            "engine": [(manifest.get("model") or {}).get("engine") for manifest in manifests],
            "folder": [str(folder) for folder in folders],
            "seed": [config.get("seed") for config in configs],
            "choices": [manifest.get("choices") or {} for manifest in manifests],
            "config": configs,
            "results": results,
        }
    )
    runs["options"] = _options(runs)
    runs["label"] = [_label(row.options) or row.method for row in runs.itertuples()]
    paths = SHARES | TOTALS | OTHERS | PEAKS
    measured = pd.DataFrame([flatten(result) for result in results]).reindex(columns=[*paths.values()])
    runs = pd.concat([runs, measured.astype(float).set_axis([*paths], axis=1)], axis=1)

    def order(i: int) -> tuple[Any, ...]:
        run = runs.loc[i]
        values = [  # nothing, then numbers by value, then texts
            (value is not None, value if isinstance(value, int | float) else math.inf, str(value))
            for value in run["options"].values()
        ]
        return *run[[*PLACE, "position"]], values

    return runs.loc[sorted(runs.index, key=order)].reset_index(drop=True)


def by_setting(runs: Frame) -> Frame:
    """Return a row per setting: means over its runs, and lists of what its runs have.

    A share has its standard deviation over runs in ``NAME std``, and its 95 % interval in ``NAME low`` and
    ``NAME high``.
    """
    groups = runs.groupby([*PLACE, "label"], sort=False)
    first = ["method", "position", "engine", "options", "choices"]
    shares = [*SHARES]
    table: Frame = pd.concat(
        [
            groups[first].agg(lambda column: column.iloc[0]),
            groups[["folder", "seed", "config", "results"]].agg(list),
            groups.size().rename("runs"),
            groups[[*shares, *TOTALS, *OTHERS]].mean(),
            groups[[*PEAKS]].max(),
            groups[shares].std().add_suffix(" std"),
        ],
        axis=1,
    ).reset_index()
    problems = table["results"].map(lambda results: fmean(map(graded, results)))
    for name in shares:  # verdicts are several for each problem, and do not vary as single answers do
        known = problems * (name != VERDICTS)
        intervals = [wilson(share, n) for share, n in zip(table[name], known, strict=True)]
        table[[f"{name} low", f"{name} high"]] = intervals
    return table


def against(settings: Frame, reference: str) -> Frame:
    """Return ``settings`` with differences of accuracies from the setting ``reference`` of the same place.

    ``difference`` with its 95 % interval ``low`` to ``high`` is over the ``n`` problems that both have, and
    ``p`` is corrected by Holm for all rows of the place. These columns are NaN where there are no such
    problems, and for the reference; ``versus`` says which. A difference is ``shown`` if its interval excludes
    0 and p < 0.05, since resampling one problem gives an interval without width.
    """
    parts = []
    for _, there in settings.groupby(PLACE, sort=False):
        grades = {row.label: _grades(row) for _, row in there.iterrows()}
        base = grades.get(reference)
        rows = [
            {} if base is None or grade is base else _difference(grade, base) for grade in grades.values()
        ]
        columns = ["difference", "low", "high", "n", "p_uncorrected"]
        names = ["reference" if label == reference else MISSING for label in grades]
        pairs: Frame = pd.DataFrame(rows, index=there.index, columns=columns, dtype=float)
        tested = pairs["n"].notna()
        pairs.loc[tested, "p"] = holm(pairs["p_uncorrected"][tested].tolist())
        beyond = (pairs["low"] > 0) | (pairs["high"] < 0)
        pairs["shown"] = beyond & (pairs["p"] < 0.05)
        parts.append(pd.concat([there, pairs], axis=1).assign(versus=names))
    return pd.concat(parts)


def equal_to(methods: Mapping[str, str]) -> str:
    """Return the label whose tokens ``budget=equal`` gives the others: of ``soft_reasoning``, or the first.

    ``methods`` holds the name of each label's method, in their order.
    """
    preferred = [label for label, name in methods.items() if name == PREFERRED]
    return PREFERRED if PREFERRED in preferred else [*preferred, *methods][0]


def find_reference(settings: Frame, *, strict: bool = True) -> str:
    """Return the label that all tables compare with.

    It is the configured ``reference``, else ``soft_reasoning``, else the first of this method or of all.

    Args:
        settings: The settings.
        strict: Whether a reference that is not among them is an error. An experiment may name one that a
            smaller sweep leaves out, and then the default is taken.

    Raises:
        UserError: If ``strict``, and the configured reference is not among the settings.
    """
    if (label := settings["config"].iloc[0][0].get("reference")) is not None:
        try:
            return named_reference(settings, label)
        except UserError as error:
            if strict:
                raise
            print(error)
    preferred = settings[settings["method"] == PREFERRED] if PREFERRED in [*settings["method"]] else settings
    labels = [*preferred["label"]]
    return PREFERRED if PREFERRED in labels else labels[0]


def named_reference(settings: Frame, label: str) -> str:
    """Return the label that has all words of ``label`` and the fewest others.

    Raises:
        UserError: If there is none.
    """
    pairs = zip(settings["label"], settings["method"], strict=True)
    named = [known for known, method in pairs if {*label.split()} <= {*known.split(), method}]
    if not named:
        known = ", ".join(dict.fromkeys(settings["label"]))
        raise UserError(f"reference: expected one of {known}, got {label}")
    return min(named, key=lambda known: len(known.split()))


def _options(runs: Frame) -> list[dict[str, Any]]:
    """For each run, its label or method if there are several, and the options that distinguish it.

    An option that follows from others in every place is left out: what a label, a method, a preset or another
    choice decides, and the keys that refer to a short option.
    """
    label = "label" if all(config.get("label") for config in runs["config"]) else "method"
    rows = []
    for run in runs.itertuples():
        name = run.config["label"] if label == "label" else run.method
        options = {**run.choices, **setting_keys(run.config)}
        values = {key: value for key, value in options.items() if key not in PLACES_OF}
        rows.append({label: name} | {key: _versus(value) for key, value in values.items()})
    table: Frame = pd.DataFrame(rows, dtype=object)
    table = table.where(table.notna(), None)
    table = table[[name for name in table if table[name].nunique(dropna=False) > 1]]
    groups = {key for chosen in runs["choices"] for key in chosen}

    def rank(name: str) -> int:
        parts = next((i for i, names in enumerate(CHOSEN_FIRST) if name in names), len(CHOSEN_FIRST))
        if parts < len(CHOSEN_FIRST) or name in groups:
            return parts
        return parts + 1 + ("." in name and not name.endswith("._target_"))

    kept: list[str] = []
    for _, names in groupby(sorted(table, key=lambda name: (rank(name), name.count("."), name)), rank):
        known = [runs[place] for place in PLACE] + [table[name] for name in kept]
        for name in names:
            follows = table[name].groupby(known, dropna=False, sort=False).nunique(dropna=False).max() == 1
            same = any(table[name].equals(table[other]) for other in kept)
            if name == label or not (follows or same):
                kept.append(name)
    # DataFrame.to_dict of pandas 2.2 has no rows without columns.
    return [{name: table[name].iloc[i] for name in kept} for i in range(len(runs))]


def _versus(value: Any) -> Any:
    """A value that pandas can group by, in which 8.0 is 8."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float | None) else json.dumps(value)


def _label(options: Mapping[str, object]) -> str:
    """A label or a method's name as it is, other values as key=value."""
    return " ".join(
        str(value) if key in ("label", "method") else f"{key}={value}"
        for key, value in options.items()
        if value is not None
    )


def _dataset_names(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The name of each data set; of several with one name, that of the file or of the hub's data set.

    Their questions may have the same ids, by which they must not be paired.
    """
    names, sources = [str(config.get("dataset.name")) for config in configs], list[str]()
    for config in configs:
        path, hub = config.get("dataset.path"), ("id", "config", "split")
        parts = [os.path.abspath(path)] if path else [config.get(f"dataset.hub.{part}") for part in hub]
        sources.append(" ".join(str(part) for part in parts if part))
    shared = Counter(name for name, _ in {*zip(names, sources, strict=True)})
    shown = zip(names, _short_names(sources), strict=True)
    return [short if shared[name] > 1 else name for name, short in shown]


def _short_names(paths: Sequence[Any]) -> list[str]:
    """The last part of each path of a model or a data set; the whole path where two share this part."""
    short = {path: str(path).rstrip("/").rpartition("/")[2] for path in set(paths)}
    names = list(short.values())
    return [short[path] if names.count(short[path]) == 1 else str(path) for path in paths]


def _position(config: Mapping[str, object]) -> int:
    """The index of a run's entry in ``methods``."""
    entries = compared_methods(config.get("methods"), str(config.get("budget")))
    return [*entries, config.get("label")].index(config.get("label"))


def _grades(row: Row) -> Frame:
    """For each graded problem the share of its runs with a ``right`` answer, and the number of ``seeds``."""
    outcomes = [pair for folder in row["folder"] for pair in read_outcomes(Path(folder)).items()]
    corrects = {"correct": [outcome.correct for _, outcome in outcomes]}
    graded: Frame = pd.DataFrame(corrects, index=[name for name, _ in outcomes], dtype=float)
    return graded["correct"].dropna().groupby(level=0).agg(right="mean", seeds="size")


def _difference(grades: Frame, base: Frame) -> dict[str, float]:
    """The paired difference of mean correctness; a problem weighs as the number of seeds with it in both.

    With the same problems in every seed all weights are 1. If each seed draws its own problems, the means are
    the accuracies over all pairs of a seed and a problem.
    """
    both = grades.join(base, how="inner", rsuffix="_base").sort_index()
    if both.empty:
        return {}
    seeds = both[["seeds", "seeds_base"]].min(axis=1)
    weights = seeds * len(both) / seeds.sum()
    pair = (weights * both["right"]).tolist(), (weights * both["right_base"]).tolist()
    difference, low, high = paired_bootstrap(*pair)
    interval = {"difference": difference, "low": low, "high": high}
    return {**interval, "n": len(both), "p_uncorrected": paired_permutation(*pair)}
