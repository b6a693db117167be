"""Trackers that follow a run: TensorBoard, Weights & Biases or MLflow, through accelerate."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from soft_reasoning.checks import finite
from soft_reasoning.lab.runs.files import MANIFEST, PAGE, PREDICTIONS, REPORT, RESULTS, read_json
from soft_reasoning.lab.runs.manifest import flatten, result_keys
from soft_reasoning.types import UserError


class Tracker:
    """Follows a run through a tracker of accelerate, which a subclass starts.

    Raises:
        UserError: If the library ``name`` or accelerate is not installed.
    """

    name: str

    def __init__(self) -> None:
        try:
            importlib.import_module(self.name)
            self.trackers: Any = importlib.import_module("accelerate.tracking")
        except ImportError as error:
            raise UserError(
                f"logging={self.name}: expected {self.name} and accelerate, which cannot be imported "
                f"({error}): pip install 'soft-reasoning[{self.name}]', or leave logging out"
            ) from error
        importlib.import_module("accelerate").PartialState()  # needed by accelerate's log

    def begin(self, folder: Path, config: Mapping[str, object]) -> Any:
        """Start to follow the run in ``folder``; return its ``accelerate.tracking.GeneralTracker``."""
        raise NotImplementedError

    def log(self, run: Any, figures: Mapping[str, float], step: int) -> None:
        """Log figures of the first ``step`` problems."""
        run.log(dict(figures), step)

    def end(self, run: Any, files: Sequence[Path] | None) -> None:
        """End the run: finished, with the ``files`` of its report, or interrupted (None)."""
        run.finish()


class TensorBoard(Tracker):
    """Writes event files into ``tensorboard`` in the run's folder: figures and the configuration."""

    name = "tensorboard"

    def begin(self, folder: Path, config: Mapping[str, object]) -> Any:
        run = self.trackers.TensorBoardTracker(self.name, folder, flush_secs=10)
        run.start()
        run.log({"config": f"```yaml\n{yaml.safe_dump(dict(config), sort_keys=False)}```"}, 0)
        return run


class WeightsAndBiases(Tracker):
    """Logs to Weights & Biases, with the report's files.

    Args:
        project: The project.
        entity: The team or user; None is the account's default.
        mode: ``online``, ``offline`` (``wandb sync`` uploads later) or ``disabled``; None is the environment
            variable WANDB_MODE, else online.
        tags: Tags of every run.
    """

    name = "wandb"

    def __init__(
        self,
        project: str = "soft_reasoning",
        entity: str | None = None,
        mode: str | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._project, self._options = project, {"entity": entity, "mode": mode, "tags": tags}

    def begin(self, folder: Path, config: Mapping[str, object]) -> Any:
        import wandb

        run = self.trackers.WandBTracker(
            self._project,
            **self._options,
            dir=str(folder),
            name=folder.name,
            group=folder.parent.name,
            settings=wandb.Settings(console="off"),  # standard output is for results
        )
        run.start()
        run.store_init_configuration(dict(config))
        return run

    def end(self, run: Any, files: Sequence[Path] | None) -> None:
        for file in files or ():
            run.tracker.save(str(file), base_path=str(file.parent), policy="now")
        run.tracker.finish(exit_code=int(files is None))


class MLflow(Tracker):
    """Logs to an MLflow server or to a database on this machine; the report's files become artifacts.

    Parameters are the values that results depend on.

    Args:
        uri: The tracking server or database, such as ``sqlite:///mlflow.db``; None is MLflow's default (the
            environment variable MLFLOW_TRACKING_URI, else a database in the current folder).
        experiment: The experiment's name, which is created if it does not exist.
    """

    name = "mlflow"

    def __init__(self, uri: str | None = None, experiment: str = "soft_reasoning") -> None:
        super().__init__()
        self._uri, self._experiment = uri, experiment

    def begin(self, folder: Path, config: Mapping[str, object]) -> Any:
        import mlflow

        if self._uri is not None:
            mlflow.set_tracking_uri(self._uri)
        tags = {"group": folder.parent.name, "folder": str(folder)}
        run = self.trackers.MLflowTracker(self._experiment, run_name=folder.name, tags=tags)
        run.start()
        run.store_init_configuration(result_keys(config))
        return run

    def end(self, run: Any, files: Sequence[Path] | None) -> None:
        import mlflow

        for file in files or ():
            run.log_artifact(str(file))
        mlflow.end_run("KILLED" if files is None else "FINISHED")


@contextmanager
def follow_run(
    tracker: Tracker | None, folder: Path, config: Mapping[str, object], say: Callable[[str], None]
) -> Generator[Callable[[Mapping[str, float], int], None]]:
    """Follow the run in ``folder`` with ``tracker``; yield a function that logs figures at a step.

    At the end the final metrics and the report's files are logged. If the tracker fails after its start, the
    logging ends with a line printed by ``say``; the run continues.

    Raises:
        UserError: If the tracker cannot start.
    """
    if tracker is None:
        yield lambda figures, step: None
        return
    folder = folder.absolute()
    try:
        run = tracker.begin(folder, config)
    except Exception as error:  # the libraries share no base class
        raise UserError(
            f"logging={tracker.name}: expected a run to begin, got {type(error).__name__}: "
            f"{' '.join(str(error).split())[:300]}; change its options"
        ) from error

    def guarded(call: Callable[..., Any], *values: Any) -> None:
        nonlocal run
        try:
            if run is not None:
                call(run, *values)
        except Exception as error:  # a lost server, for example, must not end the run
            lost, run = run, None
            say(f"logging={tracker.name} ended: {type(error).__name__}: {error}")
            with suppress(Exception):  # a run that stays active would keep the next one from its start
                tracker.end(lost, None)

    try:
        yield lambda figures, step: guarded(tracker.log, figures, step)
    except BaseException:
        guarded(tracker.end, None)
        raise
    metrics = read_json(folder / RESULTS)
    numbers = {
        "final/" + re.sub(r"[^\w\-. :/]", "_", name): float(value)  # MLflow rejects other characters
        for name, value in flatten(metrics).items()
        if finite(value)
    }
    paths = [folder / name for name in (RESULTS, REPORT, PAGE, PREDICTIONS, MANIFEST)]
    files = [path for path in paths if path.is_file()] + sorted(folder.glob("*.svg"))
    guarded(tracker.log, numbers, metrics["problems"])
    guarded(tracker.end, files)
