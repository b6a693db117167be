"""Runs of Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from soft_reasoning.checks import choice
from soft_reasoning.runs.tracking.base import Tracked, library
from soft_reasoning.types import UserError

MODES = ("online", "offline", "disabled")


class WeightsAndBiases:
    """Logs to Weights & Biases; the report's files become an artifact.

    Args:
        project: The project.
        entity: The team or user; None is the account's default.
        mode: ``online``, ``offline`` (``wandb sync`` uploads later) or ``disabled``; None is online, or what
            the environment variable WANDB_MODE says.
        folder: Where wandb keeps its files; None is the run's own folder.
        tags: Tags of every run.

    Raises:
        UserError: If wandb is not installed, or for an unknown mode.
    """

    name = "wandb"

    def __init__(
        self,
        project: str = "soft_reasoning",
        entity: str | None = None,
        mode: str | None = None,
        folder: str | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        if mode is not None:
            choice("logging.mode", mode, MODES)
        if isinstance(tags, str):
            raise UserError(f"logging.tags: expected a list such as [a,b], got {tags!r}")
        self._project, self._entity, self._mode = project, entity, mode
        self._folder, self._tags = folder, list(tags)
        self._wandb: Any = library("wandb", self.name)

    def begin(self, run: Tracked) -> WandbRun:
        wandb = self._wandb
        folder = Path(self._folder or run.folder).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            begun = wandb.init(
                project=self._project,
                entity=self._entity,
                mode=self._mode,
                dir=str(folder),
                id=run.id,
                resume=None if run.id is None else "allow",
                name=run.name,
                group=run.group,
                tags=self._tags,
                settings=wandb.Settings(console="off"),  # standard output is for results
            )
        except wandb.Error as error:
            raise UserError(
                f"logging=wandb: expected a run to begin, got {error}; log in with wandb login, or use "
                "logging.mode=offline"
            ) from error
        begun.config.update(dict(run.config), allow_val_change=True)
        return WandbRun(begun, wandb)


class WandbRun:
    """One run of Weights & Biases."""

    def __init__(self, run: Any, wandb: Any) -> None:
        self.id: str = run.id
        self._run, self._wandb = run, wandb

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self._run.log(dict(figures), step=step)

    def finish(self, metrics: Mapping[str, float], files: Sequence[Path], step: int) -> None:
        self._run.summary.update({f"final/{name}": value for name, value in metrics.items()})
        report = self._wandb.Artifact(f"report-{self.id}", type="report")
        for file in files:
            report.add_file(str(file))
        self._run.log_artifact(report)
        self._run.finish()

    def interrupt(self) -> None:
        self._run.finish(exit_code=1)
