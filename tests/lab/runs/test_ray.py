"""Runs on Ray: the records of a run without it, also when a worker or the driver is killed in the middle."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from soft_reasoning.answers import Grader
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.cli.run import run_one
from soft_reasoning.lab.runs.ray import RayLauncher
from soft_reasoning.lab.runs.runner import LocalLauncher, run
from soft_reasoning.types import Problem, UserError
from tests.lab.runs.world import OPTIONS, kept, problems
from tests.waiting import wait_until

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
COUNT = 16


@pytest.fixture(scope="module")
def address():
    """A cluster of this machine, which this process is connected to."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init("local", num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


def solve(launcher, config, folder, count=COUNT):
    """Run ``count`` problems into ``folder``; its records as text, by problem, and the metrics."""
    plain = OmegaConf.to_container(config, resolve=True)
    metrics = run(problems(count), launcher, Grader(), folder, plain | {"progress": False})
    return kept(folder), metrics


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return solve(LocalLauncher(), compose_config(OPTIONS), tmp_path_factory.mktemp("whole"))


def test_a_killed_worker_changes_nothing(address, whole, tmp_path):
    marker = tmp_path / "died"
    dying = ["engine._target_=tests.lab.runs.dying.Dying", f"+engine.marker={marker}", "+engine.calls=7"]
    config = compose_config([*OPTIONS, *dying, "max_live=3"])
    launcher = RayLauncher(workers=2, cpus=0.5)
    try:
        texts, metrics = solve(launcher, config, tmp_path / "run")
        assert marker.exists()
        assert texts == whole[0]
        for tokens in (*metrics["tokens"].values(), *whole[1]["tokens"].values()):
            del tokens["replayed"]
        assert metrics["tokens"] == whole[1]["tokens"] and metrics["exact_match"] == whole[1]["exact_match"]
        assert metrics["seconds"]["total"] > 0

        with pytest.raises(UserError, match="^problem long: the prompt has"):
            launcher.start(config, [*problems(2), Problem("long", "pens " * 10_000)])
    finally:
        launcher.close()
    assert ray.is_initialized()  # not ours to close


def test_a_killed_driver_is_continued_without_ray(address, tmp_path):
    options = [*OPTIONS, "limit=60", "progress=false"]
    on_ray = [
        "launcher=ray",
        f"launcher.address={address}",
        "launcher.workers=2",
        "launcher.cpus=0.5",
        "max_live=2",
    ]
    command = [sys.executable, "-m", "soft_reasoning.run", *options, *on_ray]
    process = subprocess.Popen([*command, f"hydra.run.dir={tmp_path / 'run'}"], cwd=ROOT)
    samples = tmp_path / "run" / "samples.jsonl"
    wait_until(lambda: process.poll() or samples.exists() and samples.read_bytes().count(b"\n") >= 3)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = samples.read_bytes()
    assert 3 <= before.count(b"\n") < 60
    for folder in ("run", "whole"):
        run_one(compose_config(options), tmp_path / folder, LocalLauncher())
    assert samples.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert kept(tmp_path / "run") == kept(tmp_path / "whole")
