"""The runs of a sweep or a comparison, grouped by the options of their commands."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Any

from soft_reasoning.lab.runs.files import MANIFEST, RESULTS, read_json
from soft_reasoning.lab.runs.manifest import DRAWS, IGNORED, LIMIT, flatten, result_keys, setting_keys
from soft_reasoning.types import UserError

METHOD, LABEL = "method", "label"
PREFERRED = "soft_reasoning"
"""The method of the default reference."""
SHOTS = "dataset.shots"
UNNAMED = {METHOD, "model", "model.path", "dataset", "dataset.name", SHOTS, *DRAWS}
"""Options that a setting's name leaves out, since they have columns or are averaged over."""
INEFFECTIVE = [name for name in IGNORED if name not in ("limit", LIMIT)]
"""Options that do not change results."""


@dataclass(frozen=True)
class RunGroup:
    """The runs of a setting on a data set with a model, one per seed.

    ``setting`` holds the options that distinguish it from the other settings, without model, data set, shots
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
        """The setting's description: a label or a method's name as it is, other values as key=value."""
        values = [
            str(value) if key in (LABEL, METHOD) else f"{key}={value}"
            for key, value in self.setting.items()
            if value is not None
        ]
        return " ".join(values) or self.method

    @property
    def place(self) -> tuple[str, str, int]:
        """Model, data set and shots; groups with the same place can be compared problem by problem."""
        return self.model, self.dataset, self.shots

    def each(self, *path: str) -> list[float]:
        """Return the values at ``path`` in the results of all runs that have such a value."""
        values = (reduce(lambda part, name: (part or {}).get(name), path, run) for run in self.results)
        return [float(value) for value in values if value is not None]

    def mean(self, *path: str) -> float | None:
        """Return the mean over runs of the value at ``path``; None if no run has such a value."""
        values = self.each(*path)
        return statistics.fmean(values) if values else None

    def per_problem(self, *path: str) -> float:
        """Return the mean over runs of a count or a time, divided by the run's problems; 0 without values."""
        values = zip(self.each(*path), self.each("problems"), strict=False)
        return sum(value / problems for value, problems in values) / len(self.results)


def read_groups(folders: Sequence[Path]) -> list[RunGroup]:
    """Return the groups of finished runs in the order of a table: model, shots, data set, setting by value.

    Raises:
        UserError: If a folder holds no finished run.
    """

    def order(group: RunGroup) -> tuple[Any, ...]:
        values = [  # nothing, then numbers by value, then texts
            (value is not None, value if isinstance(value, int | float) else math.inf, str(value))
            for value in group.setting.values()
        ]
        return group.model, group.shots, group.dataset, group.position, values

    return sorted(group_runs(folders), key=order)


def group_runs(folders: Sequence[Path]) -> list[RunGroup]:
    """Return the groups of finished runs in the order of the folders; a group's runs differ only in seeds."""
    manifests, results = ([read_json(folder / name) for folder in folders] for name in (MANIFEST, RESULTS))
    configs = [manifest["config"] for manifest in manifests]
    flat = [flatten(config) for config in configs]
    models = _model_names([config.get("model.path") for config in flat])
    places = [  # the bundled data set lacks the shots
        (model, str(config.get("dataset.name")), int(config.get(SHOTS) or 0))
        for model, config in zip(models, flat, strict=True)
    ]
    settings = find_settings(manifests, places)
    groups: dict[str, list[int]] = defaultdict(list)
    for i, config in enumerate(configs):
        same = {key: value for key, value in setting_keys(config).items() if key.split(".")[-1] != "seed"}
        groups[repr((places[i], settings[i], same))].append(i)
    return [
        RunGroup(
            *places[group[0]],
            setting=settings[group[0]],
            method=str(flat[group[0]].get("method.name")),
            position=_position(configs[group[0]]),
            folders=tuple(folders[i] for i in group),
            configs=tuple(configs[i] for i in group),
            results=tuple(results[i] for i in group),
            engine=(manifests[group[0]].get("model") or {}).get("engine"),
        )
        for group in groups.values()
    ]


def find_settings(
    manifests: Sequence[Mapping[str, Any]], places: Sequence[tuple[Any, ...]]
) -> list[dict[str, Any]]:
    """Return, for each run, its label or method if there are several, and the options that distinguish it.

    These are the options of its command that differ between runs with the same place and label.
    """
    configs = [manifest["config"] for manifest in manifests]
    typed = [_effective(manifest["overrides"]) for manifest in manifests]
    labels = [config.get(LABEL) for config in configs]
    labelled = all(labels)
    names = labels if labelled else [(config.get(METHOD) or {}).get("name") for config in configs]
    groups: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for options, place, name in zip(typed, places, names, strict=True):
        groups[place, name if labelled else None].append(options)
    varied: set[str] = set()
    for group in groups.values():
        keys = {key for options in group for key in options}
        varied |= {key for key in keys if len({repr(options.get(key)) for options in group}) > 1}
    name_key, several = LABEL if labelled else METHOD, len({*names}) > 1
    return [
        ({name_key: name} if several else {}) | {key: options.get(key) for key in sorted(varied)}
        for name, options in zip(names, typed, strict=True)
    ]


def _effective(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a command that results depend on, except for options with columns."""
    return result_keys({key: value for key, value in overrides.items() if key not in UNNAMED}, INEFFECTIVE)


def by_problems(groups: Sequence[RunGroup]) -> dict[tuple[str, str, int], list[RunGroup]]:
    """Return the groups of :func:`read_groups` by model, data set and shots."""
    return {place: list(there) for place, there in groupby(groups, lambda group: group.place)}


def named_reference(groups: Sequence[RunGroup], label: str) -> RunGroup:
    """Return the group whose label has all words of ``label`` and the fewest others.

    Raises:
        UserError: If there is none.
    """
    named = [group for group in groups if {*label.split()} <= {*group.label.split(), group.method}]
    if not named:
        known = ", ".join(dict.fromkeys(group.label for group in groups))
        raise UserError(f"reference: expected one of {known}, got {label}")
    return min(named, key=lambda group: len(group.label.split()))


def default_reference(
    groups: Sequence[RunGroup], changes: Callable[[RunGroup], int] = lambda group: 0
) -> RunGroup:
    """Return the group of ``PREFERRED`` without options, else with the fewest ``changes``, else the first."""
    preferred = [group for group in groups if group.method == PREFERRED] or groups
    plain = (group for group in preferred if group.label == PREFERRED)
    return next(plain, None) or min(preferred, key=changes)


def _model_names(paths: Sequence[Any]) -> list[str]:
    """The last part of each model's path; the whole path where two models share this part."""
    short = {path: str(path).rstrip("/").rpartition("/")[2] for path in set(paths)}
    names = list(short.values())
    return [short[path] if names.count(short[path]) == 1 else str(path) for path in paths]


def _position(config: Mapping[str, Any]) -> int:
    """The index of a run's label in ``methods``; under an equal budget it lacks the number of samples."""
    label = str(config.get(LABEL))
    methods = [entry for entry in config.get("methods") or () if entry]
    entries = [entry if isinstance(entry, str) else " ".join(entry) for entry in methods]
    matches = [entry for entry in entries if entry.startswith(label)]
    return entries.index(label if label in entries else matches[0]) if matches else len(entries)
