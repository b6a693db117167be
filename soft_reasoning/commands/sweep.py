"""Combining the runs of a Hydra multirun."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from soft_reasoning.configuration.build import plain
from soft_reasoning.configuration.compose import choices, compose_config, run_name
from soft_reasoning.lab.reports import plots
from soft_reasoning.lab.reports.compare import compare
from soft_reasoning.lab.reports.run_groups import (
    RunGroup,
    by_problems,
    default_reference,
    named_reference,
    read_groups,
)
from soft_reasoning.lab.reports.sweeps import accuracies, build_notes, build_tables, draw_sweep
from soft_reasoning.lab.reports.tables import save
from soft_reasoning.lab.runs.files import (
    GRADES,
    MANIFEST,
    PROBES,
    RESULTS,
    read_json,
    write_json,
    write_text,
    writing,
)
from soft_reasoning.lab.runs.manifest import result_keys
from soft_reasoning.types import UserError

TABLE, PLOT = "sweep", "sweep.svg"
COMPARISONS = "comparisons"
"""Folder inside a sweep's: paired differences by model, data set and number of shots."""


def combine(folder: Path) -> None:
    """Write one table over the runs in ``folder``, its plot, rounds, costs and paired differences.

    Runs of a sweep over comparisons (``methods=[...]``) are one folder deeper and included.

    Raises:
        UserError: If there is no finished run, or ``reference`` names no setting.
    """
    finished = (path.parent for path in folder.rglob(RESULTS))
    runs = sorted(path for path in finished if path.parent.name != PROBES)
    if not runs:
        raise UserError(
            f"{folder}: expected finished runs of a sweep, found none; see the output of its jobs"
        )
    groups = read_groups(runs)
    reference = find_reference(groups, read_json(runs[0] / MANIFEST)["overrides"])
    tables = build_tables(groups, reference)
    print(f"\n{tables[TABLE].text()}\n")
    parts = ["# Sweep", tables[TABLE].markdown(), *build_notes(groups), *_distribution(groups)]
    with writing(folder):
        if plots.available():
            draw_sweep(groups, folder / PLOT)
            parts.append(f"![The sweep]({PLOT})")
        else:
            print(plots.MISSING)
            parts.append(plots.MISSING)
    for name, table in tables.items():
        save(table, folder, name)
        parts += [] if name == TABLE else [f"## {table.title}", table.note, table.markdown()]
    write_json(folder / f"{TABLE}.json", [row for group in groups for row in _unrounded(group)])
    write_text(folder / f"{TABLE}.md", "\n\n".join(parts) + "\n")
    print(folder / f"{TABLE}.md")
    places = {
        (model, dataset, f"{shots} shots"): there
        for (model, dataset, shots), there in by_problems(groups).items()
    }
    _compare_all(places, reference.label, folder)


def _distribution(groups: Sequence[RunGroup]) -> list[str]:
    """Mean, deviation and range of the accuracies of a sweep over seeds or projections only."""
    if len(groups) > 1 or len(values := accuracies(groups[0])) < 2:
        return []
    seeds = [(config.get("embedding") or {}).get("seed") for config in groups[0].configs]
    drawn = "projections" if len(set(seeds)) > 1 else "seeds"
    text = f"Accuracy over {len(values)} {drawn}: {plots.distribution_note(values)}"
    return [f"{text}, median {statistics.median(values):.1f} %."]


def _unrounded(group: RunGroup) -> list[dict[str, Any]]:
    """A row per run: its folder, its setting and its results."""
    setting = {"model": group.model, "dataset": group.dataset, "shots": group.shots, **group.setting}
    return [
        {"folder": str(folder), **setting, "seed": config.get("seed"), **result}
        for folder, config, result in zip(group.folders, group.configs, group.results, strict=True)
    ]


def find_reference(groups: Sequence[RunGroup], overrides: Mapping[str, Any]) -> RunGroup:
    """Return the group that all tables compare with: the configured ``reference``, or nearest the defaults.

    The defaults are those of the sweep's own experiment and preset, if it has one that the package knows.

    An experiment may name a reference that a smaller sweep leaves out, and then the default is taken.

    Args:
        groups: The groups of the sweep.
        overrides: The options of a run's command.

    Raises:
        UserError: If the command itself names the reference, and no group has this name.
    """
    if (label := groups[0].configs[0].get("reference")) is not None:
        try:
            return named_reference(groups, label)
        except UserError as error:
            if "reference" in overrides:
                raise
            print(error)
    base = [
        f"{sign}{group}={name}"
        for group, sign in (("experiment", "+"), ("preset", ""))
        if (name := overrides.get(group)) in choices(group) and not any(group in g.setting for g in groups)
    ]
    defaults = result_keys(plain(compose_config(base)))
    return default_reference(
        groups, lambda group: min(_changes(result_keys(config), defaults) for config in group.configs)
    )


def _compare_all(places: Mapping[tuple[str, str, str], Sequence[RunGroup]], label: str, folder: Path) -> None:
    """Write paired differences to the group of that ``label``, on the problems that it shares with others."""
    if max(map(len, places.values())) < 2:
        return
    alone = len(places) == 1
    for place, groups in places.items():
        if any(len(group.each("exact_match")) < len(group.results) for group in groups):
            continue
        reference = next((group for group in groups if group.label == label), None)
        solved = _problems(reference) if reference else set[str]()
        compared = [group for group in groups if group is not reference and solved & _problems(group)]
        if reference is None or not compared:
            print(f"no differences: no run has problems in common with {label} ({', '.join(place)})")
            continue
        runs = [run for group in (reference, *compared) for run in group.folders]
        where = folder if alone else folder / COMPARISONS / run_name(*place)
        compare(runs, where, reference=reference.folders[0], show=alone)


def _problems(group: RunGroup) -> set[str]:
    """The ids of the problems that the runs of ``group`` solved."""
    return {name for folder in group.folders for name in read_json(folder / GRADES)}


def _changes(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> int:
    """The number of keys other than the seed that differ from the defaults."""
    keys = (set(config) | set(defaults)) - {"seed"}
    return sum(key not in config or key not in defaults or config[key] != defaults[key] for key in keys)
