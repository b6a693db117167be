"""Trackers that follow a run: TensorBoard, Weights & Biases or MLflow, through accelerate."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from soft_reasoning.checks import finite
from soft_reasoning.lab.runs.files import MANIFEST, PAGE, PREDICTIONS, REPORT, RESULTS, read_json
from soft_reasoning.lab.runs.manifest import flatten, result_keys
from soft_reasoning.types import UserError


@dataclass(frozen=True)
class Tracker:
    """Follows runs with the library ``name``; the report's files go to W&B and MLflow.

    Args:
        name: ``tensorboard`` (event files in the run's folder), ``wandb`` or ``mlflow``.
        project: W&B's project.
        entity: W&B's team or user; None is the account's default.
        mode: W&B's ``online``, ``offline`` or ``disabled``; None is the environment variable WANDB_MODE.
        tags: W&B's tags of every run.
        uri: MLflow's tracking server or database, such as ``sqlite:///mlflow.db``; None is its default.
        experiment: MLflow's experiment, which is created if it does not exist.
    """

    name: str
    project: str = "soft_reasoning"
    entity: str | None = None
    mode: str | None = None
    tags: Sequence[str] = ()
    uri: str | None = None
    experiment: str = "soft_reasoning"

    def begin(self, folder: Path, config: Mapping[str, Any]) -> tuple[Any, Callable[[str], object]]:
        """Begin to follow the run in ``folder``.

        Returns:
            An ``accelerate.tracking.GeneralTracker``, and a function that saves a file with the run.
        """
        from accelerate import PartialState, tracking

        PartialState()  # needed by accelerate's log
        place = {"name": folder.name, "group": folder.parent.name}
        if self.name == "wandb":
            from wandb import Settings

            quiet = Settings(console="off")  # standard output is for results
            account = {"entity": self.entity, "mode": self.mode, "tags": self.tags}
            run = tracking.WandBTracker(self.project, dir=str(folder), settings=quiet, **place, **account)
            run.start()
            run.store_init_configuration(dict(config))
            return run, partial(run.tracker.save, base_path=str(folder), policy="now")
        if self.name == "mlflow":
            from mlflow import set_tracking_uri

            if self.uri is not None:
                set_tracking_uri(self.uri)
            run = tracking.MLflowTracker(self.experiment, run_name=folder.name, tags=place)
            run.start()
            run.store_init_configuration(result_keys(config))
            return run, run.log_artifact
        run = tracking.TensorBoardTracker(self.name, folder, flush_secs=10)
        run.start()
        run.log({"config": f"```yaml\n{yaml.safe_dump(dict(config), sort_keys=False)}```"}, 0)
        return run, lambda file: None


@contextmanager
def follow_run(
    tracker: Tracker | None, folder: Path, config: Mapping[str, Any], say: Callable[[str], None]
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
    folder, following = folder.absolute(), True
    try:
        run, save = tracker.begin(folder, config)
    except Exception as error:  # the libraries share no base class
        raise UserError(
            f"logging={tracker.name}: expected a run to begin, got {type(error).__name__}: "
            f"{' '.join(str(error).split())[:300]}; pip install 'soft-reasoning[{tracker.name}]', or change "
            "its options"
        ) from error

    def attempt(call: Callable[..., object], *values: object) -> None:
        nonlocal following
        try:
            if following:
                call(*values)
        except Exception as error:  # a lost server, for example, must not end the run
            following = False
            say(f"logging={tracker.name} ended: {type(error).__name__}: {error}")

    try:
        yield lambda figures, step: attempt(run.log, dict(figures), step)
        metrics = read_json(folder / RESULTS)
        numbers = {
            "final/" + re.sub(r"[^\w\-. :/]", "_", name): float(value)  # MLflow rejects other characters
            for name, value in flatten(metrics).items()
            if finite(value)
        }
        attempt(run.log, numbers, metrics["problems"])
        paths = [folder / name for name in (RESULTS, REPORT, PAGE, PREDICTIONS, MANIFEST)]
        for path in [*filter(Path.is_file, paths), *sorted(folder.glob("*.svg"))]:
            attempt(save, str(path))
    finally:
        with suppress(Exception):  # a run that stays active would keep the next one from its start
            run.finish()
