"""Trackers that follow a run: TensorBoard, Weights & Biases or MLflow, through accelerate's."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from soft_reasoning.checks import finite
from soft_reasoning.runs.files import MANIFEST, PAGE, PREDICTIONS, REPORT, RESULTS
from soft_reasoning.runs.manifest import flatten, result_keys
from soft_reasoning.types import UserError


class Tracker(Protocol):
    """Follows runs; it is configured by the group ``logging``, which calls it ``name``."""

    name: str

    def begin(self, folder: Path, config: Mapping[str, Any]) -> Any:
        """Begin the run in ``folder`` and return its ``accelerate.tracking.GeneralTracker``."""
        ...

    def end(self, run: Any, files: Sequence[Path] | None) -> None:
        """End the run: finished, with the ``files`` of its report, or (None) interrupted."""
        ...


class TensorBoard:
    """Writes event files into ``tensorboard`` in the run's folder: figures and the configuration.

    Raises:
        UserError: If TensorBoard is not installed.
    """

    name = "tensorboard"

    def __init__(self) -> None:
        self._trackers = _trackers(self.name)

    def begin(self, folder: Path, config: Mapping[str, Any]) -> Any:
        run = self._trackers.TensorBoardTracker(self.name, folder, flush_secs=10)
        run.start()
        run.log({"config": f"```yaml\n{yaml.safe_dump(dict(config), sort_keys=False)}```"}, 0)
        return run

    def end(self, run: Any, files: Sequence[Path] | None) -> None:
        run.finish()


class WeightsAndBiases:
    """Logs to Weights & Biases; the report's files become an artifact.

    Args:
        project: The project.
        entity: The team or user; None is the account's default.
        mode: ``online``, ``offline`` (``wandb sync`` uploads later) or ``disabled``; None is online, or what
            the environment variable WANDB_MODE says.
        tags: Tags of every run.

    Raises:
        UserError: If wandb is not installed.
    """

    name = "wandb"

    def __init__(
        self,
        project: str = "soft_reasoning",
        entity: str | None = None,
        mode: str | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        self._project, self._options = project, {"entity": entity, "mode": mode, "tags": tags}
        self._trackers = _trackers(self.name)

    def begin(self, folder: Path, config: Mapping[str, Any]) -> Any:
        import wandb

        run = self._trackers.WandBTracker(
            self._project, **self._options, dir=str(folder), name=folder.name, group=folder.parent.name,
            settings=wandb.Settings(console="off"),  # standard output is for results
        )  # fmt: skip
        run.start()
        run.store_init_configuration(dict(config))
        return run

    def end(self, run: Any, files: Sequence[Path] | None) -> None:
        import wandb

        if files is not None:
            report = wandb.Artifact(f"report-{run.tracker.id}", type="report")
            for file in files:
                report.add_file(str(file))
            run.tracker.log_artifact(report)
        run.tracker.finish(exit_code=int(files is None))


class MLflow:
    """Logs to an MLflow server or to a database on this machine; the report's files become artifacts.

    Parameters are the values that results depend on.

    Args:
        uri: The tracking server or database, such as ``sqlite:///mlflow.db``; None is what MLflow takes by
            itself (the environment variable MLFLOW_TRACKING_URI, else a database in the current folder).
        experiment: The experiment's name, which is created if it does not exist.

    Raises:
        UserError: If MLflow is not installed.
    """

    name = "mlflow"

    def __init__(self, uri: str | None = None, experiment: str = "soft_reasoning") -> None:
        self._uri, self._experiment = uri, experiment
        self._trackers = _trackers(self.name)

    def begin(self, folder: Path, config: Mapping[str, Any]) -> Any:
        import mlflow

        if self._uri is not None:
            mlflow.set_tracking_uri(self._uri)
        tags = {"group": folder.parent.name, "folder": str(folder)}
        run = self._trackers.MLflowTracker(self._experiment, run_name=folder.name, tags=tags)
        run.start()
        run.store_init_configuration(result_keys(config))
        return run

    def end(self, run: Any, files: Sequence[Path] | None) -> None:
        import mlflow

        for file in files or ():
            run.log_artifact(str(file))
        mlflow.end_run("KILLED" if files is None else "FINISHED")


def _trackers(name: str) -> Any:
    """``accelerate.tracking``, after the library of the tracker ``name`` has been imported."""
    try:
        importlib.import_module(name)
        trackers = importlib.import_module("accelerate.tracking")
    except ImportError as error:
        raise UserError(
            f"logging={name}: expected {name} and accelerate, which cannot be imported ({error}): "
            f"pip install 'soft-reasoning[{name}]', or leave logging out"
        ) from error
    importlib.import_module("accelerate").PartialState()  # without it accelerate's own log raises an error
    return trackers


class Followed:
    """Tells ``tracker`` about the run in ``folder`` while the context is open; None tells nobody.

    An error of the tracker after the beginning ends the logging with one line by ``say``, and not the run.

    Raises:
        UserError: If the tracker cannot begin.
    """

    def __init__(
        self, tracker: Tracker | None, folder: Path, config: Mapping[str, Any], say: Callable[[str], None]
    ) -> None:
        self._tracker, self._folder, self._say = tracker, folder.absolute(), say
        try:
            self._run = None if tracker is None else tracker.begin(self._folder, config)
        except Exception as error:  # the libraries share no base class
            raise UserError(
                f"logging={getattr(tracker, 'name', None)}: expected a run to begin, got "
                f"{type(error).__name__}: {' '.join(str(error).split())[:300]}; change its options"
            ) from error

    def __enter__(self) -> Followed:
        return self

    def __exit__(self, *_: object) -> None:
        self._tell(lambda tracker, run: tracker.end(run, None))

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Log figures of the first ``step`` problems."""
        self._tell(lambda _, run: run.log(dict(figures), step))

    def finish(self, metrics: Mapping[str, Any]) -> None:
        """Log the final metrics and the report's files, and end the run."""
        numbers = {
            "final/" + re.sub(r"[^\w\-. :/]", "_", name): float(value)  # other signs MLflow refuses
            for name, value in flatten(metrics).items()
            if finite(value)
        }
        named = [self._folder / name for name in (RESULTS, REPORT, PAGE, PREDICTIONS, MANIFEST)]
        files = [path for path in named if path.is_file()] + sorted(self._folder.glob("*.png"))
        self.log(numbers, metrics["problems"])
        self._tell(lambda tracker, run: tracker.end(run, files))
        self._run = None

    def _tell(self, call: Callable[[Tracker, Any], None]) -> None:
        if self._run is None or self._tracker is None:
            return
        try:
            call(self._tracker, self._run)
        except Exception as error:  # such as a server that has gone: hours of work do not end for it
            self._run = None
            self._say(f"logging={self._tracker.name} ended: {type(error).__name__}: {error}")
