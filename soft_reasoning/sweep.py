"""After a Hydra multirun: one table over its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from soft_reasoning.analysis.tables import combine


class CombineRuns(Callback):
    """Writes and prints the combined table of a sweep once its last job has ended."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        runs = sorted(p.parent for p in folder.glob("*/results.json"))
        if runs:
            combine(runs, folder)
