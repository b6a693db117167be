"""Trackers that follow a run: TensorBoard, Weights & Biases or MLflow, through accelerate."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soft_reasoning.checks import finite
from soft_reasoning.lab.runs.files import MANIFEST, PAGE, PREDICTIONS, REPORT, RESULTS, Json, read_json
from soft_reasoning.lab.runs.manifest import flatten, result_keys
from soft_reasoning.types import UserError

SAVED = (RESULTS, REPORT, PAGE, PREDICTIONS, MANIFEST, "*.svg")
"""The files of a run that go to W&B and MLflow."""


@dataclass(frozen=True)
class Tracker:
    """Follows runs with the library ``name``; its own environment variables set all but the project.

    Args:
        name: ``tensorboard`` (event files in the run's folder), ``wandb`` or ``mlflow``.
        project: W&B's project, or MLflow's experiment.
    """

    name: str
    project: str = "soft_reasoning"

    def begin(self, folder: Path) -> tuple[Any, Callable[[str], object]]:
        """Begin to follow the run in ``folder``.

        Returns:
            An ``accelerate.tracking.GeneralTracker``, and a function that saves a file with the run.
        """
        from accelerate import PartialState, tracking

        PartialState()  # needed by accelerate's log
        name, group = folder.name, folder.parent.name
        if self.name == "wandb":
            from wandb import Settings

            quiet = Settings(console="off")  # standard output is for results
            run = tracking.WandBTracker(self.project, dir=str(folder), settings=quiet, name=name, group=group)
            run.start()
            return run, lambda file: run.tracker.save(file, base_path=str(folder), policy="now")
        if self.name == "mlflow":
            run = tracking.MLflowTracker(self.project, run_name=name, tags={"group": group})
            run.start()
            return run, run.log_artifact
        run = tracking.TensorBoardTracker(self.name, folder, flush_secs=10)
        run.start()
        return run, lambda file: None


@contextmanager
def follow_run(
    tracker: Tracker | None, folder: Path, config: Json, say: Callable[[str], None]
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
        run, save = tracker.begin(folder)
    except Exception as error:  # the libraries share no base class
        raise UserError(
            f"logging={tracker.name}: expected a run to begin, got {type(error).__name__}: "
            f"{' '.join(str(error).split())[:300]}; pip install accelerate {tracker.name}, or change "
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
        attempt(run.store_init_configuration, {key: str(value) for key, value in result_keys(config).items()})
        yield lambda figures, step: attempt(run.log, dict(figures), step)
        metrics = read_json(folder / RESULTS)
        numbers = {
            "final/" + re.sub(r"[^\w\-. :/]", "_", name): float(value)  # MLflow rejects other characters
            for name, value in flatten(metrics).items()
            if finite(value)
        }
        attempt(run.log, numbers, metrics["problems"])
        for path in (path for pattern in SAVED for path in sorted(folder.glob(pattern))):
            attempt(save, str(path))
    finally:
        with suppress(Exception):  # a run that stays active would keep the next one from its start
            run.finish()
