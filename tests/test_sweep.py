"""Sweeps: what their end says, launchers that work, and launchers that do not."""

import importlib.util
import json
from pathlib import Path

import pytest

from soft_reasoning.configuration.context import build_engine
from soft_reasoning.lab.runs import runner
from tests.test_run import FAKE


def plugin(name):
    missing = importlib.util.find_spec("hydra_plugins") is None or (
        importlib.util.find_spec(f"hydra_plugins.hydra_{name}_launcher") is None
    )
    return pytest.mark.skipif(missing, reason=f"the {name} launcher is not installed (extra: launchers)")


def test_slurm_where_there_is_none_is_one_line(run, monkeypatch):
    monkeypatch.setenv("PATH", "")
    done = run(*FAKE, "limit=2", "-m", "seed=0,1", "hydra/launcher=submitit_slurm")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "srun" in done.stderr


def test_jobs_with_the_same_engine_share_it(run, monkeypatch):
    loaded, closed = [], []

    def load(config):
        engine = build_engine(config)
        loaded.append(config["engine"]["max_batch_rows"])
        monkeypatch.setattr(engine, "close", lambda: closed.append(config["engine"]["max_batch_rows"]))
        return engine

    monkeypatch.setattr(runner, "build_engine", load)
    sweep = ["limit=2", "method=cot", "-m", "seed=0,1", "hydra.sweep.dir=out"]
    done = run("engine=hf", "engine.max_batch_rows=2,3", *sweep)
    assert done.returncode == 0, done.stderr
    assert len(list(Path("out").glob("*/results.json"))) == 4
    assert loaded == closed == [2, 3]


def test_a_sweep_ends_in_table_plot_and_paired_differences(run, tmp_path):
    done = run(*FAKE, "limit=2", "-m", "d=5,25", "rounds=0")
    assert done.returncode == 0, done.stderr
    [folder] = tmp_path.glob("runs/sweep-*")
    names = {path.name for path in folder.iterdir()}
    assert {"comparison.md", "comparison.csv", "comparison.json", "sweep.svg", "sweep.pdf"} <= names
    rows = json.loads((folder / "comparison.json").read_text())
    assert [row["label"] for row in rows] == ["d=5", "d=25"]
    assert ["difference" in row for row in rows] == [False, True]  # the first is the reference


@pytest.mark.slow
def test_how_a_run_is_watched_and_spread_out_leaves_its_folder(run, tmp_path):
    command = ["engine=fake", "method=cot", "max_new_tokens=4", "limit=2", "-m", "seed=0,1"]
    options = ["max_live=3", "++progress=true", "fresh=false", "launcher=local", "hydra/launcher=basic"]
    assert run(*command).returncode == run(*command, *options).returncode == 0
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"], marks=plugin("joblib")),
        # The jobs that Slurm would get, as processes of this machine.
        pytest.param(["hydra/launcher=submitit_local"], marks=plugin("submitit")),
    ],
    ids=["joblib", "submitit"],
)
def test_launchers_run_the_jobs_and_combine_them(run, tmp_path, options):
    done = run(*FAKE, "limit=2", "-m", "seed=0,1", "rounds=0", *options)
    assert done.returncode == 0, done.stderr
    [folder] = tmp_path.glob("runs/sweep-*")
    assert len(list(folder.glob("*/results.json"))) == 2
    assert [row["runs"] for row in json.loads((folder / "comparison.json").read_text())] == [2]
