"""The runs of a sweep, grouped by model, shots, setting and data set for tables and plots."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soft_reasoning.reports.settings import NAMES, differing, is_draw
from soft_reasoning.runs.files import read_manifest, read_results
from soft_reasoning.runs.manifest import flatten

SHOTS = "dataset.shots"


@dataclass(frozen=True)
class Cell:
    """One setting on one data set by one model: its runs, one per seed.

    ``setting`` holds the values that distinguish it from the sweep's other settings, without model, data
    set, shots and seeds. ``position`` is the index of its label in ``methods=[...]``.
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

    def each(self, *path: str) -> list[float]:
        """Return the value at ``path`` of every run's results that have one."""
        found = []
        for run in self.results:
            value: Any = run
            for name in path:
                value = value.get(name) if isinstance(value, Mapping) else None
            if value is not None:
                found.append(float(value))
        return found

    def mean(self, *path: str) -> float | None:
        """Return the mean over runs of the value at ``path``; None if no run has one."""
        values = self.each(*path)
        return statistics.fmean(values) if values else None

    def error(self, name: str) -> float | None:
        """Return the standard deviation of a share over seeds; for a single run its standard error."""
        values = self.each(name)
        if len(values) > 1:
            return statistics.stdev(values)
        return self.results[0].get(f"{name}_stderr")


def read_cells(folders: Sequence[Path]) -> list[Cell]:
    """Return the cells of finished runs in the order of a table: model, shots, data set, setting by value.

    Raises:
        UserError: If a folder holds no finished run.
    """
    manifests = [read_manifest(folder) for folder in folders]
    results = [read_results(folder) for folder in folders]
    configs = [manifest["config"] for manifest in manifests]
    models = _model_names([_at(config, "model.path") for config in configs])
    groups: dict[str, list[int]] = {}
    settings = [_own(setting) for setting in differing(configs)]
    for i, config in enumerate(configs):
        key = repr((models[i], _at(config, "dataset.name"), _shots(config), settings[i]))
        groups.setdefault(key, []).append(i)
    cells = [
        Cell(
            model=models[first],
            dataset=str(_at(configs[first], "dataset.name")),
            shots=_shots(configs[first]),
            setting=settings[first],
            method=str(_at(configs[first], "method.name")),
            position=_position(configs[first]),
            folders=tuple(folders[i] for i in indices),
            configs=tuple(configs[i] for i in indices),
            results=tuple(results[i] for i in indices),
            engine=(manifests[first].get("model") or {}).get("engine"),
        )
        for first, *rest in groups.values()
        for indices in [[first, *rest]]
    ]
    return sorted(cells, key=_order)


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
    return len({(cell.model, cell.dataset, cell.shots) for cell in cells}) > 1


def by_problems(cells: Sequence[Cell]) -> dict[tuple[str, str, int], list[Cell]]:
    """Group cells by model, data set and shots; a group can be compared problem by problem."""
    groups: dict[tuple[str, str, int], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.model, cell.dataset, cell.shots), []).append(cell)
    return groups


def _at(config: Mapping[str, Any], key: str) -> Any:
    return flatten(config).get(key)


def _shots(config: Mapping[str, Any]) -> int:
    """A data set without the key, such as the bundled one, shows no exemplars."""
    return int(_at(config, SHOTS) or 0)


def _own(setting: Mapping[str, Any]) -> dict[str, Any]:
    """``setting`` without the keys that other fields of a cell hold."""
    return {
        key: value
        for key, value in setting.items()
        if key not in (*NAMES, SHOTS, "dataset") and not is_draw(key)
    }


def _model_names(paths: Sequence[Any]) -> list[str]:
    """The last part of each model's path; the whole path where two models share it."""
    short = {path: str(path).rstrip("/").rpartition("/")[2] for path in set(paths)}
    names = list(short.values())
    return [short[path] if names.count(short[path]) == 1 else str(path) for path in paths]


def _position(config: Mapping[str, Any]) -> int:
    label = str(config.get("label"))
    entries = [" ".join([one] if isinstance(one, str) else one) for one in config.get("methods") or () if one]
    if label in entries:
        return entries.index(label)
    near = (i for i, entry in enumerate(entries) if entry.startswith(label))  # an equal budget hides samples
    return next(near, len(entries))


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
