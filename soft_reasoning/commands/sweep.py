"""Combining the runs of a Hydra multirun."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from soft_reasoning.configuration.build import plain
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.configuration.conf_dir import run_name
from soft_reasoning.reports import plots
from soft_reasoning.reports.cells import Cell, by_problems, read_cells
from soft_reasoning.reports.compare import compare
from soft_reasoning.reports.sweeps import accuracies, build_notes, build_tables, draw_sweep
from soft_reasoning.reports.tables import save
from soft_reasoning.reports.viewer.overview import write_overview
from soft_reasoning.runs.files import GRADES, PROBES, RESULTS, read_json, write_json, write_text, writing
from soft_reasoning.runs.manifest import result_keys
from soft_reasoning.types import UserError

TABLE, PLOT = "sweep", "sweep.png"
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
    cells = read_cells(runs)
    tables = build_tables(cells)
    print(f"\n{tables[TABLE].text()}\n")
    parts = ["# Sweep", tables[TABLE].markdown(), *build_notes(cells), *_distribution(cells)]
    with writing(folder):
        if plots.available():
            draw_sweep(cells, folder / PLOT)
            parts.append(f"![The sweep]({PLOT})")
        else:
            print(plots.MISSING)
            parts.append(plots.MISSING)
    for name, table in tables.items():
        save(table, folder, name)
        parts += [] if name == TABLE else [f"## {table.title}", table.note, table.markdown()]
    write_json(folder / f"{TABLE}.json", [row for cell in cells for row in _unrounded(cell)])
    write_text(folder / f"{TABLE}.md", "\n\n".join(parts) + "\n")
    print(folder / f"{TABLE}.md")
    groups = {(model, dataset, f"{shots} shots"): group
              for (model, dataset, shots), group in by_problems(cells).items()}  # fmt: skip
    _compare_all(groups, folder)
    columns = {", ".join(place): group for place, group in groups.items()}
    write_overview(folder, "Sweep", list(tables.values()), columns, {})


def _distribution(cells: Sequence[Cell]) -> list[str]:
    """Mean, deviation and range of the accuracies of a sweep over seeds or projections only."""
    if len(cells) > 1 or len(values := accuracies(cells[0])) < 2:
        return []
    seeds = [(config.get("embedding") or {}).get("seed") for config in cells[0].configs]
    drawn = "projections" if len(set(seeds)) > 1 else "seeds"
    text = f"Accuracy over {len(values)} {drawn}: {plots.distribution_note(values)}"
    return [f"{text}, median {statistics.median(values):.1f} %."]


def _unrounded(cell: Cell) -> list[dict[str, Any]]:
    """A row per run: its folder, its setting and its results."""
    setting = {"model": cell.model, "dataset": cell.dataset, "shots": cell.shots, **cell.setting}
    return [
        {"folder": str(folder), **setting, "seed": config.get("seed"), **result}
        for folder, config, result in zip(cell.folders, cell.configs, cell.results, strict=True)
    ]


def _compare_all(groups: Mapping[tuple[str, str, str], Sequence[Cell]], folder: Path) -> None:
    """Write paired differences on the same problems, to ``reference`` or the setting nearest the defaults."""
    if max(map(len, groups.values())) < 2:
        return
    defaults = result_keys(plain(compose_config()))
    alone = len(groups) == 1
    for place, group in groups.items():
        if len(group) < 2 or any(len(cell.each("exact_match")) < len(cell.results) for cell in group):
            continue
        changes = [min(_changes(result_keys(c), defaults) for c in cell.configs) for cell in group]
        nearest = group[changes.index(min(changes))]
        solved = _problems(nearest)
        compared = [cell for cell in group if cell is not nearest and solved & _problems(cell)]
        if not compared:
            print(f"no differences: the settings share no problem ({', '.join(place)})")
            continue
        runs = [run for cell in (nearest, *compared) for run in cell.folders]
        where = folder if alone else folder / COMPARISONS / run_name(*place)
        compare(runs, where, reference=nearest.configs[0].get("reference"), show=alone)


def _problems(cell: Cell) -> set[str]:
    """The ids of the problems that the runs of ``cell`` solved."""
    return {name for folder in cell.folders for name in read_json(folder / GRADES)}


def _changes(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> int:
    """The number of keys that differ from the defaults, without the seed."""
    keys = (set(config) | set(defaults)) - {"seed"}
    return sum(key not in config or key not in defaults or config[key] != defaults[key] for key in keys)
