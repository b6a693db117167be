"""What follows the run of a data set: TensorBoard, Weights & Biases or MLflow, by accelerate's trackers."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from soft_reasoning.checks import choice, finite
from soft_reasoning.runs.files import MANIFEST, PAGE, PREDICTIONS, REPORT, RESULTS, write_json
from soft_reasoning.runs.manifest import flatten, result_keys
from soft_reasoning.types import UserError

LOGGING = "logging.json"
"""In a run's folder: what each tracker calls the run."""
MODES = ("online", "offline", "disabled")


@dataclass(frozen=True)
class Tracked:
    """A run as a tracker sees it.

    Attributes:
        folder: Its folder. The last part is the run's name, the one before that of its group: a comparison, a
            sweep or simply where the runs are.
        config: Its configuration as plain data.
        done: Problems that it holds already.
        id: What the tracker called it before; None for a new run.
    """

    folder: Path
    config: Mapping[str, Any]
    done: int = 0
    id: str | None = None

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.folder.absolute().name

    @property
    def group(self) -> str:
        """The name of its group."""
        return self.folder.absolute().parent.name


class Tracker(Protocol):
    """Follows runs; it is configured by the group ``logging``.

    ``log`` is ``accelerate.tracking.GeneralTracker.log`` of what ``begin`` returned.
    """

    @property
    def name(self) -> str:
        """What the command line calls it."""
        ...

    def begin(self, run: Tracked) -> tuple[Any, str]:
        """Begin ``run``, or continue the one of its ``id``; return a ``GeneralTracker`` and the run's id.

        Raises:
            UserError: If the tracker cannot be reached.
        """
        ...

    def save(self, run: Any, files: Sequence[Path], step: int) -> None:
        """Add the report's files."""
        ...

    def end(self, run: Any, finished: bool) -> None:
        """End the run, as one that may go on later unless it is ``finished``."""
        ...


class TensorBoard:
    """Writes event files, which ``tensorboard --logdir runs`` shows.

    Scalars are the running figures and, under ``final/``, the metrics. Texts are the configuration and
    ``report.md``; images are the plots.

    Args:
        folder: Holds a folder for each run; None puts the files into ``tensorboard`` in the run's own folder.

    Raises:
        UserError: If TensorBoard is not installed.
    """

    name = "tensorboard"

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._trackers = _trackers(self.name)

    def begin(self, run: Tracked) -> tuple[Any, str]:
        folder = run.folder / self.name if self._folder is None else Path(self._folder, run.group, run.name)
        # What an earlier run in this folder logged after the problems that are stored is hidden.
        begun = self._trackers.TensorBoardTracker(
            folder.name, folder.parent, purge_step=run.done + 1, flush_secs=10
        )
        begun.start()
        begun.log(
            {"config": f"```yaml\n{yaml.safe_dump(dict(run.config), sort_keys=False)}```"}, run.done + 1
        )
        return begun, str(folder)

    def save(self, run: Any, files: Sequence[Path], step: int) -> None:
        import numpy
        from PIL import Image  # as TensorBoard itself does

        for file in files:
            if file.suffix == ".md":
                run.log({file.stem: file.read_text(encoding="utf-8")}, step)
            elif file.suffix == ".png":
                image = numpy.asarray(Image.open(file).convert("RGB"))
                run.log_images({file.stem: image[None]}, step, dataformats="NHWC")

    def end(self, run: Any, finished: bool) -> None:
        run.finish()


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
        self._project, self._folder = project, folder
        self._options = {"entity": entity, "mode": mode, "tags": list(tags)}
        self._trackers = _trackers(self.name)

    def begin(self, run: Tracked) -> tuple[Any, str]:
        import wandb

        folder = Path(self._folder or run.folder).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        begun = self._trackers.WandBTracker(
            self._project, **self._options, dir=str(folder), id=run.id, resume=run.id and "allow",
            name=run.name, group=run.group,
            settings=wandb.Settings(console="off"),  # standard output is for results
        )  # fmt: skip
        try:
            begun.start()
        except wandb.Error as error:
            raise UserError(
                f"logging=wandb: expected a run to begin, got {error}; log in with wandb login, or use "
                "logging.mode=offline"
            ) from error
        begun.store_init_configuration(dict(run.config))
        return begun, begun.tracker.id

    def save(self, run: Any, files: Sequence[Path], step: int) -> None:
        import wandb

        report = wandb.Artifact(f"report-{run.tracker.id}", type="report")
        for file in files:
            report.add_file(str(file))
        run.tracker.log_artifact(report)

    def end(self, run: Any, finished: bool) -> None:
        run.tracker.finish(exit_code=0 if finished else 1)


class MLflow:
    """Logs to an MLflow server or to a database on this machine.

    Parameters are the values that results depend on; the whole configuration is the artifact ``config.yaml``.

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

    def begin(self, run: Tracked) -> tuple[Any, str]:
        import mlflow

        begun = self._trackers.MLflowTracker(
            self._experiment, run_id=run.id, run_name=run.name,
            tags={"group": run.group, "folder": str(run.folder)},
        )  # fmt: skip
        try:
            if self._uri is not None:
                mlflow.set_tracking_uri(self._uri)
            begun.start()
            if run.id is None:
                begun.store_init_configuration(result_keys(run.config))
            mlflow.log_dict(dict(run.config), "config.yaml")
        except (mlflow.MlflowException, ImportError, OSError) as error:
            fix = "" if run.id is None else f", or delete {run.folder / LOGGING} to begin another run there"
            raise UserError(
                f"logging=mlflow: expected a run to begin or go on, got {error}; check logging.uri, such as "
                f"sqlite:///mlflow.db{fix}"
            ) from error
        return begun, begun.tracker.info.run_id

    def save(self, run: Any, files: Sequence[Path], step: int) -> None:
        for file in files:
            run.log_artifact(str(file))

    def end(self, run: Any, finished: bool) -> None:
        import mlflow

        mlflow.end_run("FINISHED" if finished else "KILLED")


def _trackers(name: str) -> Any:
    """``accelerate.tracking``, after the library of the tracker ``name`` has been imported."""
    try:
        importlib.import_module(name)
        return importlib.import_module("accelerate.tracking")
    except ImportError as error:
        raise UserError(
            f"logging={name}: expected {name} and accelerate, which cannot be imported ({error}): "
            f"pip install 'soft-reasoning[{name}]', or leave logging out"
        ) from error


class Followed:
    """Tells ``tracker`` about the run in ``folder``; None tells nobody.

    The run's id at the tracker is kept in ``logging.json``, so that a resumed run goes on in the same one. An
    error of the tracker after the beginning ends the logging, which is said in one line, and not the run.

    Args:
        tracker: The tracker.
        say: Prints one line.
    """

    def __init__(self, tracker: Tracker | None, say: Callable[[str], None]) -> None:
        self._tracker, self._say = tracker, say
        self._run: Any = None

    def begin(self, folder: Path, config: Mapping[str, Any], done: int) -> None:
        """Begin the run, or continue the one that holds ``done`` problems.

        Raises:
            UserError: If the tracker cannot be reached.
        """
        if self._tracker is None:
            return
        path, name = folder / LOGGING, self._tracker.name
        ids: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        self._run, ids[name] = self._tracker.begin(Tracked(folder, config, done, ids.get(name)))
        write_json(path, ids)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Log running figures of the first ``step`` problems."""
        self._tell(lambda tracker, run: run.log(dict(figures), step))

    def finish(self, folder: Path, metrics: Mapping[str, Any]) -> None:
        """Log the final metrics and the report's files."""
        refused = re.compile(r"[^\w\-. :/]")  # by MLflow
        numbers = {
            f"final/{refused.sub('_', name)}": float(value)
            for name, value in flatten(metrics).items()
            if finite(value)
        }
        named = [folder / name for name in (RESULTS, REPORT, PAGE, PREDICTIONS, MANIFEST)]
        files = [path for path in named if path.is_file()] + sorted(folder.glob("*.png"))
        self._tell(lambda tracker, run: run.log(numbers, metrics["problems"]))
        self._tell(lambda tracker, run: tracker.save(run, files, metrics["problems"]))
        self._tell(lambda tracker, run: tracker.end(run, finished=True))
        self._run = None

    def interrupt(self) -> None:
        """End the run, unless it is finished, as one that may go on later."""
        self._tell(lambda tracker, run: tracker.end(run, finished=False))
        self._run = None

    def _tell(self, call: Callable[[Tracker, Any], None]) -> None:
        if self._run is None or self._tracker is None:
            return
        try:
            call(self._tracker, self._run)
        except Exception as error:  # such as a server that has gone: hours of work do not end for it
            self._run = None
            self._say(f"logging={self._tracker.name} ended: {type(error).__name__}: {error}")
