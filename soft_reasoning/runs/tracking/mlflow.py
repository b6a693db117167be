"""Runs of MLflow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from soft_reasoning.runs.tracking.base import LOGGING, Tracked, library
from soft_reasoning.types import UserError

AT_ONCE = 100
"""Most parameters that MLflow takes in one call."""


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
        self._mlflow: Any = library("mlflow", self.name)

    def begin(self, run: Tracked) -> MLflowRun:
        try:
            return self._begin(run)
        except (self._mlflow.MlflowException, ImportError, OSError) as error:
            fix = "" if run.id is None else f", or delete {run.folder / LOGGING} to begin another run there"
            raise UserError(
                f"logging=mlflow: expected a run to begin or go on, got {error}; check logging.uri, such as "
                f"sqlite:///mlflow.db{fix}"
            ) from error

    def _begin(self, run: Tracked) -> MLflowRun:
        client: Any = self._mlflow.MlflowClient(tracking_uri=self._uri)
        if run.id is not None:
            client.update_run(run.id, status="RUNNING")
            begun = MLflowRun(client, run.id)
        else:
            found = client.get_experiment_by_name(self._experiment)
            experiment = client.create_experiment(self._experiment) if found is None else found.experiment_id
            tags = {"group": run.group, "folder": str(run.folder)}
            made = client.create_run(experiment, run_name=run.name, tags=tags)
            begun = MLflowRun(client, made.info.run_id)
            begun.describe(run.settings, self._mlflow.entities.Param)
        client.log_dict(begun.id, dict(run.config), "config.yaml")
        return begun


class MLflowRun:
    """One run of MLflow."""

    def __init__(self, client: Any, name: str) -> None:
        self.id: str = name
        self._client = client

    def describe(self, settings: Mapping[str, Any], param: Any) -> None:
        """Log the values of ``settings`` as parameters, which never change."""
        entries = [param(key, str(value)[:6000]) for key, value in settings.items()]
        for start in range(0, len(entries), AT_ONCE):
            self._client.log_batch(self.id, params=entries[start : start + AT_ONCE])

    def log(self, figures: Mapping[str, float], step: int) -> None:
        for name, value in figures.items():
            self._client.log_metric(self.id, name, value, step=step)

    def finish(self, metrics: Mapping[str, float], files: Sequence[Path], step: int) -> None:
        for name, value in metrics.items():
            known = re.sub(r"[^\w\-. :/]", "_", name)  # MLflow refuses other characters
            self._client.log_metric(self.id, f"final/{known}", value, step=step)
        for file in files:
            self._client.log_artifact(self.id, str(file))
        self._client.set_terminated(self.id, "FINISHED")

    def interrupt(self) -> None:
        self._client.set_terminated(self.id, "KILLED")
