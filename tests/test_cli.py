"""The console script: its commands, help and completion."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from soft_reasoning import __version__
from soft_reasoning.cli import main as entry
from soft_reasoning.cli import run as run_module
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.cli.run import own_words
from soft_reasoning.configuration.data import conf_dir
from soft_reasoning.configuration.registry import GROUPS

FAKE = ["engine=fake", "progress=false", "max_new_tokens=4", "limit=2"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fly"], "expected a command (run, compare,"),
        (["compare", "cot"], "expected two methods or more before the options, got cot"),
        (["run", "limit"], "limit: expected key=value"),
        (["serve", "limit=3"], "limit: expected an option that soft-reasoning serve reads"),
        (["tune", "method=cot"], "method: expected an option that soft-reasoning tune reads"),
        (["tune", "tune.points=1"], "tune.points: expected a whole number of at least 2"),
    ],
)
def test_a_wrong_command_is_one_line(command, words, expected):
    done = command(*words)
    assert done.returncode == 2 and not done.stdout
    assert len(done.stderr.splitlines()) == 1 and expected in done.stderr


def test_an_equal_budget_and_the_stored_command_of_a_compared_method_which_runs_it_by_itself(command):
    words = ["limit=2", "budget=equal", "reference=soft_reasoning", "hydra.run.dir=out"]
    compared = ("compare", "cot", "self_consistency k=3", "soft_reasoning", *FAKE, *words)
    done = command(*compared)
    assert done.returncode == 0, done.stderr
    assert "as many tokens as soft_reasoning generates: self_consistency (" in done.stdout
    rows = {row["label"]: row["tokens"] for row in json.loads(Path("out/comparison.json").read_text())}
    target = rows["soft_reasoning"]
    assert abs(rows["self_consistency"] - target) <= rows["cot"]  # a sample's
    assert len(list(Path("out/probes").glob("*-k_3"))) == 1
    samples = {path: path.read_bytes() for path in Path("out").glob("*/samples.jsonl")}
    assert command(*compared).returncode == 0 and len(samples) == 3
    assert {path: path.read_bytes() for path in samples} == samples
    [folder] = Path("out").glob("self_consistency-k_*")
    samples = folder.name.rpartition("_")[2]
    told = shlex.split(json.loads((folder / "manifest.json").read_text())["command"])
    own = ["method=self_consistency", f"k={samples}"]
    assert told == ["soft-reasoning", "run", *FAKE, "limit=2", *own]
    config = compose_config(told[2:])
    assert config.methods is None and config.budget == "own" and config.method.samples == int(samples)


def test_the_methods_of_an_experiment_are_no_part_of_the_command_of_one():
    words = own_words(["+experiment=demo_compare", "limit=2", "method=cot"])
    assert words == ["+experiment=demo_compare", "limit=2", "method=cot", "methods=null"]
    assert compose_config(words).methods is None


def test_a_folder_of_configurations_is_no_method(command, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(run_module.Launchers, "run", lambda launchers, job: seen.append(job.config))
    (tmp_path / "own" / "experiment").mkdir(parents=True)
    (tmp_path / "own" / "experiment" / "short.yaml").write_text("# @package _global_\nseed: 7\n")
    done = command("compare", "cot", "fire", "+experiment=short", "--config-dir", "own")
    assert done.returncode == 0, done.stderr
    assert [(config.methods, config.seed) for config in seen] == [(["cot", "fire"], 7)]


def test_the_version_and_a_run_as_a_module(command, tmp_path):
    assert command("--version").stdout == f"soft-reasoning {__version__}\n"
    words = [sys.executable, "-m", "soft_reasoning.run", "--help"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "soft-reasoning run [group=choice]" in done.stdout


def test_the_configuration_of_a_comparison_is_that_of_each_row(run, command):
    shown = run("methods=[cot,[soft_reasoning,'preset=paper']]", "--cfg", "job")
    assert shown.returncode == 0, shown.stderr
    for flag in (["--cfg", "job"], ["--cfg=job"], ["-c", "job"]):
        assert command("compare", "cot", "soft_reasoning preset=paper", *flag).stdout == shown.stdout
    first, second = yaml.safe_load_all(shown.stdout)
    assert "--- # soft_reasoning preset=paper\n" in shown.stdout
    assert (first["method"]["name"], "d" in first, second["d"]) == ("cot", False, 50)


@pytest.mark.parametrize("method", ["cot", "soft_reasoning"])
def test_the_configuration_of_any_method_is_shown(run, method):
    """What follows from an option stands before Hydra's flags, behind which it reads none."""
    shown = run(f"method={method}", "--cfg", "job")
    assert shown.returncode == 0, shown.stderr
    assert yaml.safe_load(shown.stdout)["method"]["name"] == method
    assert ("acquisition" in shown.stdout) == (method == "soft_reasoning")  # only what it reads
    listed = run("--info", "defaults", f"method={method}")
    assert listed.returncode == 0 and f"method/{method} " in listed.stdout, listed.stderr


def test_help_is_short_and_names_every_command_and_group(command):
    out = command("--help").stdout
    assert all(f"  {name} " in out for name in entry.COMMANDS) and len(out.splitlines()) < 18
    config = Path(conf_dir(), "config.yaml").read_text(encoding="utf-8")
    text = config.partition("template: |")[2].partition("hydra_logging")[0]
    groups = {"dataset", "exemplars", "experiment", "model", "prompt", "preset", *GROUPS}
    assert not [group for group in groups if group not in text] and len(text.splitlines()) < 32


def test_libraries_draw_no_bars_where_standard_error_is_no_terminal(tmp_path):
    code = "from soft_reasoning.cli.main import main; main(); from tqdm.auto import tqdm; list(tqdm([1]))"
    plain = {k: v for k, v in os.environ.items() if k not in ("TQDM_DISABLE", "HF_HUB_DISABLE_PROGRESS_BARS")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=plain)
    assert done.returncode == 0 and done.stderr == ""
