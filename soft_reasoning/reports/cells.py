"""The runs of a sweep or a comparison, grouped by what tells them apart."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd

from soft_reasoning.runs.files import read_manifest, read_results
from soft_reasoning.runs.manifest import CLASS, DRAWS, flatten, setting_keys

SHOTS = "dataset.shots"
NAMES = ("model.path", "dataset.name")
"""Keys from which others follow: a data set determines prompts and exemplars."""


@dataclass(frozen=True)
class Cell:
    """One setting on one data set by one model: its runs, one per seed.

    ``setting`` holds the values that distinguish it from the other settings, without model, data set, shots
    and seeds. ``position`` is the index of its label in ``methods=[...]``.
    """

    model: str
    dataset: str
    shots: int
    setting: Mapping[str, Any]
    method: str
    position: int
    folders: tuple[Path, ...]
    configs: tuple[Mapping[str, Any], ...]
    results: tuple[Mapping[str, Any], ...]
    engine: str | None = None

    @property
    def label(self) -> str:
        """Label of the table's row."""
        return row_label(self.setting) or self.method

    @property
    def place(self) -> tuple[str, str, int]:
        """Model, data set and shots; cells of one place can be compared problem by problem."""
        return self.model, self.dataset, self.shots

    def each(self, *path: str) -> list[float]:
        """Return the value at ``path`` of every run's results that have one."""
        values = (reduce(lambda part, name: (part or {}).get(name), path, run) for run in self.results)
        return [float(value) for value in values if value is not None]

    def mean(self, *path: str) -> float | None:
        """Return the mean over runs of the value at ``path``; None if no run has one."""
        values = self.each(*path)
        return statistics.fmean(values) if values else None

    def per_problem(self, *path: str) -> float:
        """Return the mean over runs of a count or a time, divided by the run's problems; 0 without one."""
        values = zip(self.each(*path), self.each("problems"), strict=False)
        return sum(value / problems for value, problems in values) / len(self.results)


def read_cells(folders: Sequence[Path]) -> list[Cell]:
    """Return the cells of finished runs in the order of a table: model, shots, data set, setting by value.

    Raises:
        UserError: If a folder holds no finished run.
    """
    return sorted(cells_of(folders), key=_order)


def cells_of(folders: Sequence[Path]) -> list[Cell]:
    """Return the cells of finished runs in the order of the folders."""
    manifests = [read_manifest(folder) for folder in folders]
    results = [read_results(folder) for folder in folders]
    configs = [manifest["config"] for manifest in manifests]
    flat = [flatten(config) for config in configs]
    models = _model_names([config.get("model.path") for config in flat])
    settings = [
        {
            key: value
            for key, value in setting.items()
            if key not in (*NAMES, SHOTS, "dataset") and key.removeprefix("method.") not in DRAWS
        }
        for setting in differing(configs)
    ]
    groups: dict[str, list[int]] = {}
    for i, config in enumerate(flat):
        key = repr((models[i], config.get("dataset.name"), config.get(SHOTS), settings[i]))
        groups.setdefault(key, []).append(i)
    return [
        Cell(
            model=models[indices[0]],
            dataset=str(flat[indices[0]].get("dataset.name")),
            shots=int(flat[indices[0]].get(SHOTS) or 0),  # the bundled data set lacks the key
            setting=settings[indices[0]],
            method=str(flat[indices[0]].get("method.name")),
            position=_position(configs[indices[0]]),
            folders=tuple(Path(folders[i]) for i in indices),
            configs=tuple(configs[i] for i in indices),
            results=tuple(results[i] for i in indices),
            engine=(manifests[indices[0]].get("model") or {}).get("engine"),
        )
        for indices in groups.values()
    ]


def row_label(setting: Mapping[str, Any]) -> str:
    """Describe a setting: a label or a method's name as it is, other values as key=value."""
    parts = [
        str(value) if key in ("label", "method.name") else f"{key}={value}"
        for key, value in setting.items()
        if value is not None
    ]
    return " ".join(parts)


def datasets_of(cells: Sequence[Cell]) -> list[str]:
    """Return the names of the data sets of ``cells``."""
    return sorted({cell.dataset for cell in cells})


def spreads(cells: Sequence[Cell]) -> bool:
    """Whether the cells differ in model, data set or shots."""
    return len({cell.place for cell in cells}) > 1


def by_problems(cells: Sequence[Cell]) -> dict[tuple[str, str, int], list[Cell]]:
    """Group cells by model, data set and shots."""
    groups: dict[tuple[str, str, int], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.place, []).append(cell)
    return groups


def _model_names(paths: Sequence[Any]) -> list[str]:
    """The last part of each model's path; the whole path where two models share it."""
    short = {path: str(path).rstrip("/").rpartition("/")[2] for path in set(paths)}
    names = list(short.values())
    return [short[path] if names.count(short[path]) == 1 else str(path) for path in paths]


def _position(config: Mapping[str, Any]) -> int:
    label = str(config.get("label"))
    methods = [entry for entry in config.get("methods") or () if entry]
    entries = [entry if isinstance(entry, str) else " ".join(entry) for entry in methods]
    if label in entries:
        return entries.index(label)
    # Under an equal budget the label lacks the number of samples.
    return next((i for i, entry in enumerate(entries) if entry.startswith(label)), len(entries))


def _order(cell: Cell) -> tuple[Any, ...]:
    values = tuple(_value_order(value) for value in cell.setting.values())
    return cell.model, cell.shots, cell.dataset, cell.position, values


def _value_order(value: Any) -> tuple[int, float, str]:
    """Sorts nothing, then numbers by value, then texts."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 1, float(value), ""
    return 2, 0.0, str(value)


def differing(configs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each configuration, its values of the keys that differ between them.

    Keys that repeat others are left out:

    - Of several keys with the same values the shortest stays.
    - The parts of something that only some configurations have follow from the key that chose it.
      They are named only where nothing else distinguishes two runs.
    - A class follows from a plain key (a name) that determines it.
    - What follows from one of ``NAMES`` is left out.
    - If every configuration has a ``label``, it replaces all that follows from it.
    """
    if not configs:
        return []
    flat = [setting_keys(config) for config in configs]
    values: Any = pd.DataFrame([{key: repr(value) for key, value in config.items()} for config in flat])
    common, values = values.columns[values.notna().all()], values.fillna("None")

    def decides(key: str, other: str) -> bool:
        """Whether equal values of ``key`` always come with equal values of ``other``."""
        return bool((values.groupby(key)[other].nunique() == 1).all())

    def kinds(keys: Sequence[str]) -> int:
        return len(values[[*keys]].drop_duplicates()) if keys else 1

    rest = sorted({*values} - {*common}, key=lambda name: (len(name), name))
    keys = [key for key in common if values[key].nunique() > 1] or rest
    for name in NAMES:
        if name in keys:
            keys = [key for key in keys if key in NAMES or not decides(name, key)]
    keys.sort(key=lambda name: (name.count("."), len(name), name))
    keys = list(values[keys].T.drop_duplicates().index)
    plain = [key for key in keys if not key.endswith(CLASS)]
    chosen = [key for key in keys if key in plain or not any(decides(name, key) for name in plain)]
    for key in rest:  # parts that only some have, if they distinguish runs that are equal so far
        if kinds([*chosen, key]) > kinds(chosen):
            chosen.append(key)
    labels = [config.get("label") for config in configs]
    labelled = all(labels) and len({*labels}) > 1
    if labelled:
        values["label"] = labels
        chosen = [key for key in chosen if not decides("label", key)]
    return [
        ({"label": label} if labelled else {})
        | {key.removesuffix(CLASS): _readable(key, config.get(key)) for key in sorted(chosen)}
        for config, label in zip(flat, labels, strict=True)
    ]


def _readable(key: str, value: Any) -> Any:
    return str(value).rpartition(".")[2] if key.endswith(CLASS) else value
