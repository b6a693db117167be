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
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from soft_reasoning.lab.reports.statistics import holm, paired_bootstrap, paired_permutation, wilson
from soft_reasoning.lab.reports.tables import MISSING
from soft_reasoning.lab.runs.files import MANIFEST, RESULTS, Json, read_json
from soft_reasoning.lab.runs.manifest import flatten, method_name, setting_keys
from soft_reasoning.lab.runs.naming import compared_methods
from soft_reasoning.lab.runs.records import COVERAGE_AT, read_grades
from soft_reasoning.types import UserError

Frame: TypeAlias = Any
Setting: TypeAlias = Any
"""A DataFrame and one of its rows. The annotations of pandas lack the types of many results."""

PLACE = ["model", "shots", "data set"]
"""Settings in the same place can be compared problem by problem."""
PLACE_KEYS = {"method", "model", "dataset", "model.path", "dataset.name", "dataset.shots", "method.name"}
"""Options that have columns of their own."""
CHOSEN_FIRST = ("experiment", "preset")
"""Choices that decide others."""
PREFERRED = "soft_reasoning"
"""The method of the default reference."""

ACCURACY = "accuracy"
VERDICTS = "verifier's accuracy, first round"
SHARES = {
    ACCURACY: "exact_match",
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
}
OTHERS = {"problems": "problems", "decided": "decided"}
PEAKS = {"kv": "peak_bytes.kv", "activations": "peak_bytes.activations"}
"""Columns by their keys in results.json: means over runs, and the most of all runs."""


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
            "model": _short_names([str(config.get("model.path")) for config in flat]),
            "shots": [int(config.get("dataset.shots") or 0) for config in flat],  # the bundled data have none
            "data set": _short_names([_dataset(config) for config in flat]),
            "method": [method_name(config) for config in configs],
            "position": [_position(config) for config in configs],
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

    def order(i: int) -> tuple[object, ...]:
        run = runs.loc[i]
        values = [  # nothing, then numbers by value, then texts
            (value is not None, value if isinstance(value, int | float) else math.inf, str(value))
            for value in run["options"].values()
        ]
        return *run[[*PLACE, "position"]], values

    return runs.loc[sorted(runs.index, key=order)].reset_index(drop=True)


def _short_names(paths: Sequence[str]) -> list[str]:
    """The last part of each path of a model or a data set; the whole path where two share this part."""
    short = {path: path.rstrip("/").rpartition("/")[2] for path in paths}
    names = Counter(short.values())
    return [short[path] if names[short[path]] == 1 else path for path in paths]


def _dataset(config: Json) -> str:
    """The name of a data set; one that is given by its columns is named by its file or its hub's id.

    Questions of two such data sets may have the same ids, by which they must not be paired.
    """
    name, path = str(config.get("dataset.name")), config.get("dataset.path")
    source = os.path.abspath(path) if path else config.get("dataset.hub.id")
    return str(source or name) if name == "custom" else name


def _position(config: Json) -> int:
    """The index of a run's entry in ``methods``."""
    entries = compared_methods(config.get("methods"), str(config.get("budget")))
    return [*entries, config.get("label")].index(config.get("label"))


def _options(runs: Frame) -> list[Json]:
    """For each run, its label or method if there are several, and the options that distinguish it.

    An option that follows from others in every place is left out: what a label, a method, a preset or another
    choice decides, and the keys that refer to a short option.
    """
    name = "label" if all(config.get("label") for config in runs["config"]) else "method"
    rows: list[Json] = []
    for run in runs.itertuples():
        options = {**run.choices, **setting_keys(run.config)}
        values = {key: _comparable(value) for key, value in options.items() if key not in PLACE_KEYS}
        rows.append({name: run.config["label"] if name == "label" else run.method} | values)
    table: Frame = pd.DataFrame(rows, dtype=object)
    table = table.where(table.notna(), None)
    first = [name, *CHOSEN_FIRST, *sorted({key for chosen in runs["choices"] for key in chosen})]

    def order(key: str) -> tuple[int, int, str]:  # a decisive key before those that it decides
        return first.index(key) if key in first else len(first), key.count("."), key

    kept: list[str] = []
    for key in sorted(table, key=order):
        known = [runs[place] for place in PLACE] + [table[other] for other in kept]
        several = table[key].nunique(dropna=False) > 1
        varies = (
            several and table[key].groupby(known, dropna=False, sort=False).nunique(dropna=False).max() > 1
        )
        if varies or several and key == name:
            kept.append(key)
    return [dict(zip(kept, values, strict=True)) for values in table[kept].to_numpy().tolist()]


def _comparable(value: object) -> object:
    """A value that pandas can group by, in which 8.0 is 8."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float | None) else json.dumps(value)


def _label(options: Mapping[str, object]) -> str:
    """A label or a method's name as it is, other values as key=value."""
    shown = {key: value for key, value in options.items() if value is not None}
    return " ".join(str(v) if key in ("label", "method") else f"{key}={v}" for key, v in shown.items())


def by_setting(runs: Frame) -> Frame:
    """Return a row per setting: means over its runs, and lists of what its runs have.

    A share has its standard deviation over runs in ``NAME std``, and its 95 % interval in ``NAME low`` and
    ``NAME high``.
    """
    groups = runs.groupby([*PLACE, "label"], sort=False)
    shares = [*SHARES]
    settings: Frame = pd.concat(
        [
            groups[["method", "position", "options"]].agg(lambda column: column.iloc[0]),
            groups[["folder", "seed", "config", "results"]].agg(list),
            groups.size().rename("runs"),
            groups[[*shares, *TOTALS, *OTHERS]].mean(),
            groups[[*PEAKS]].max(),
            groups[shares].std().add_suffix(" std"),
        ],
        axis=1,
    ).reset_index()
    problems = settings["results"].map(lambda results: fmean(run["questions"] for run in results))
    for name in shares:  # verdicts are several for each problem, and do not vary as single answers do
        known = problems * (name != VERDICTS)
        intervals = [wilson(share, n) for share, n in zip(settings[name], known, strict=True)]
        settings[[f"{name} low", f"{name} high"]] = intervals
    return settings


def default_reference(methods: Mapping[str, str]) -> str:
    """Return the label that others are compared with, and whose tokens ``budget=equal`` gives them.

    It is that of ``soft_reasoning``, else the first one. ``methods`` holds the name of each label's method.
    """
    preferred = [label for label, name in methods.items() if name == PREFERRED]
    return PREFERRED if PREFERRED in preferred else [*preferred, *methods][0]


def find_reference(settings: Frame, label: str | None) -> str:
    """Return the label that has all words of ``label`` and the fewest others, else the default one.

    An experiment may name a reference that a smaller sweep leaves out; a line says so.
    """
    methods = dict(zip(settings["label"], settings["method"], strict=True))
    if label is not None:
        words = {*label.split()}
        if named := [known for known, method in methods.items() if words <= {*known.split(), method}]:
            return min(named, key=lambda known: len(known.split()))
        print(f"reference: expected one of {', '.join(methods)}, got {label}")
    return default_reference(methods)


def against(settings: Frame, reference: str) -> Frame:
    """Return ``settings`` with differences of accuracies from the setting ``reference`` of the same place.

    ``difference`` with its 95 % interval ``low`` to ``high`` is over the ``n`` problems that both have, and
    ``p`` is corrected by Holm for all rows of the place. These columns are NaN where there are no such
    problems, and for the reference; ``versus`` says which. A difference is ``shown`` if its interval excludes
    0 and p < 0.05, since resampling one problem gives an interval without width.
    """
    grades = settings["folder"].map(_grades)
    columns, parts = ["difference", "low", "high", "n", "p_uncorrected"], list[Frame]()
    for _, there in settings.groupby(PLACE, sort=False):
        is_reference = there["label"] == reference
        base = grades[there.index[is_reference]]
        pairs: Frame = pd.DataFrame(np.nan, there.index, columns)
        for i in there.index[~is_reference] if len(base) else ():
            pairs.loc[i] = _difference(grades[i], base.iloc[0])
        tested = pairs["n"].notna()
        pairs.loc[tested, "p"] = holm(pairs["p_uncorrected"][tested].tolist())
        beyond = (pairs["low"] > 0) | (pairs["high"] < 0)
        pairs["shown"] = beyond & (pairs["p"] < 0.05)
        pairs["versus"] = is_reference.map({True: "reference", False: MISSING})
        parts.append(pairs)
    return pd.concat([settings, pd.concat(parts)], axis=1)


def _grades(folders: Sequence[str]) -> Frame:
    """For each graded question the share of ``right`` answers, and the ``number`` of answers.

    Problems with the same question count as one, since they are right or wrong together.
    """
    grades: Frame = pd.DataFrame(
        [(g.question or name, g.correct) for f in folders for name, g in read_grades(Path(f)).items()],
        columns=["question", "correct"],
    )
    known = grades.astype({"correct": float}).dropna()
    return known.groupby("question")["correct"].agg(right="mean", number="size")


def _difference(grades: Frame, base: Frame) -> list[float]:
    """The paired difference of mean correctness with its interval, n and p.

    A question weighs as the number of answers to it in both. With the same problems in every seed, and each
    question once, all weights are 1. If each seed draws its own problems, the means are the accuracies over
    all pairs of a seed and a problem.
    """
    both = grades.join(base, how="inner", rsuffix="_base")
    if both.empty:
        return [math.nan] * 5
    number = both[["number", "number_base"]].min(axis=1)
    weights = number * len(both) / number.sum()
    pair = (weights * both["right"]).tolist(), (weights * both["right_base"]).tolist()
    return [*paired_bootstrap(*pair), len(both), paired_permutation(*pair)]
