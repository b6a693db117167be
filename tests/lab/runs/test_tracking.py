"""Runs followed by TensorBoard, Weights & Biases and MLflow: their own libraries, no network."""

import json
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from soft_reasoning.engine.fake import FakeEngine
from tests.waiting import wait_until

FAKE = ["engine=fake", "method=cot", "progress=false", "max_new_tokens=20", "max_live=2", "hydra.run.dir=one"]


@pytest.fixture
def run(command, tmp_path, monkeypatch):
    """Runs the command in an empty folder, which it returns with the exit code and output."""
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments):
        done = command("run", *arguments)
        return SimpleNamespace(code=done.returncode, err=done.stderr, folder=tmp_path / "one")

    return call


def results(folder):
    return json.loads((folder / "results.json").read_text())


def test_tensorboard_and_a_resumed_run_that_goes_on(run):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert run(*FAKE, "limit=3", "logging=tensorboard").code == 0
    done = run(*FAKE, "limit=7", "logging=tensorboard")
    events, measured = EventAccumulator(str(done.folder / "tensorboard")), results(done.folder)
    events.Reload()
    accuracy = events.Scalars("accuracy")
    assert [point.step for point in accuracy] == [1, 2, 3, 4, 5, 6, 7]
    assert accuracy[-1].value == pytest.approx(measured["exact_match"])
    assert events.Scalars("coverage")[-1].value == pytest.approx(measured["coverage"])
    tokens = measured["tokens"]["total"]["generated"]
    assert events.Scalars("generated_tokens_per_problem")[-1].value == tokens / 7
    assert [point.step for point in events.Scalars("final/exact_match")] == [3, 7]
    configs = [path.read_text() for path in (done.folder / "tensorboard").glob("*/hparams.yml")]
    assert len(configs) == 2 and all("max_new_tokens: '20'" in text for text in configs)


@pytest.mark.slow
def test_wandb_gets_figures_and_the_report(run, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    done = run(*FAKE, "logging=wandb", "logging.project=mine", "limit=5")
    assert done.code == 0
    [path] = done.folder.glob("wandb/offline-run-*/*.wandb")
    wanted = (b"final/exact_match", b"report.html", b"mine")  # wandb writes in a process of its own
    wait_until(lambda: all(word in path.read_bytes() for word in wanted))


@pytest.mark.slow
def test_mlflow_and_an_interrupted_run_whose_next_is_a_new_one(run, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri := f"sqlite:///{tmp_path}/runs.db")
    words = [*FAKE, "logging=mlflow", "logging.project=mine", "limit=5"]
    with monkeypatch.context() as broken:
        broken.setattr(FakeEngine, "add", Mock(side_effect=KeyboardInterrupt))
        assert run(*words).code == 130
    done = run(*words)
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("mine").experiment_id
    first, again = client.search_runs([experiment], order_by=["start_time ASC"])
    assert "ended" not in done.err
    assert first.info.status == "FINISHED"  # else the next run could not begin
    assert (again.info.run_name, again.data.tags["group"]) == ("one", tmp_path.name)
    assert again.data.params["max_new_tokens"] == "20" and "limit" not in again.data.params
    measured = results(done.folder)
    assert [m.step for m in client.get_metric_history(again.info.run_id, "accuracy")] == [1, 2, 3, 4, 5]
    assert again.data.metrics["final/coverage_5"] == pytest.approx(measured["coverage@5"])
    assert again.data.metrics["final/exact_match"] == pytest.approx(measured["exact_match"])
    names = {entry.path for entry in client.list_artifacts(again.info.run_id)}
    assert {"results.json", "report.md", "report.html", "manifest.json"} <= names


@pytest.mark.slow
def test_an_error_of_the_tracker_ends_the_logging_and_not_the_run(run, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")

    def gone(*_, **__):
        raise ConnectionError("the server has gone")

    monkeypatch.setattr("mlflow.log_metrics", gone)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/runs.db")
    done = run(*FAKE, "logging=mlflow", "limit=5")
    assert done.code == 0 and results(done.folder)["problems"] == 5
    assert done.err.count("logging=mlflow ended: ConnectionError: the server has gone") == 1
    assert mlflow.active_run() is None  # else the next method of a comparison could not begin


def test_a_missing_library_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    done = run(*FAKE, "logging=wandb")
    assert done.code == 2 and "pip install accelerate wandb" in done.err
    assert len(done.err.splitlines()) == 1
