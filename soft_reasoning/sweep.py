"""After a Hydra multirun: what its runs say together."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from soft_reasoning.analysis import plots
from soft_reasoning.analysis.settings import differing, result_keys
from soft_reasoning.analysis.tables import combine
from soft_reasoning.config import compose_config
from soft_reasoning.evaluation.compare import compare
from soft_reasoning.evaluation.files import PROBES, RESULTS, read_json, read_manifest
from soft_reasoning.types import UserError


class CombineRuns(Callback):
    """Once the last job of a sweep has ended: one table over its runs, a plot, and paired differences.

    The differences are to the setting nearest to the defaults. Runs of a sweep over comparisons
    (``methods=[...]``) lie one folder deeper and are taken together as well.
    """

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        try:
            self._combine(Path(config.hydra.sweep.dir))
        except UserError as error:  # Hydra makes a warning of it
            print(f"soft_reasoning: {error}", file=sys.stderr)

    def _combine(self, folder: Path) -> None:
        found = (path.parent for path in folder.rglob(RESULTS))
        runs = sorted((path for path in found if path.parent.name != PROBES), key=natural)
        if not runs:
            return
        combine(runs, folder)
        configs = [read_manifest(run)["config"] for run in runs]
        results = [read_json(run / RESULTS) for run in runs]
        rows = by_setting(configs, results)
        if plots.available():
            plots.accuracy_by_setting(rows, folder / "sweep.png")
        else:
            print(plots.MISSING)
        if len(rows) > 1 and all(result.get("exact_match") is not None for result in results):
            defaults = result_keys(OmegaConf.to_container(compose_config(), resolve=True))
            changes = [_changes(result_keys(one), defaults) for one in configs]
            nearest = changes.index(min(changes))
            print()
            compare([runs[nearest], *runs[:nearest], *runs[nearest + 1 :]], folder)


def natural(path: Path) -> list[Any]:
    """A sort key that puts dim=5 before dim=10."""
    parts = re.split(r"(\d+(?:\.\d+)?)", str(path))
    return [float(part) if i % 2 else part for i, part in enumerate(parts)]


def by_setting(
    configs: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """A row for each setting: the values that tell it from the others (``setting``, without the seed) and
    ``accuracy`` and ``coverage`` of its runs, with the standard error of the first."""
    rows: dict[str, dict[str, Any]] = {}
    for setting, result in zip(differing(configs), results, strict=True):
        setting.pop("seed", None)
        row = rows.setdefault(
            json.dumps(setting),
            {
                "setting": setting,
                "accuracy": [],
                "accuracy_stderr": result.get("exact_match_stderr"),
                "coverage": [],
                "coverage_stderr": result.get("coverage_stderr"),
            },
        )
        row["accuracy"].append(result.get("exact_match"))
        row["coverage"].append(result.get("coverage"))
    return list(rows.values())


def _changes(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> int:
    """How many keys differ from the defaults, seed apart."""
    keys = (set(config) | set(defaults)) - {"seed"}
    return sum(key not in config or key not in defaults or config[key] != defaults[key] for key in keys)
