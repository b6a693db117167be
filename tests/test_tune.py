"""The command tune: a folder with a point, continued by the same command, and runs that decode after it."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.lab.runs.manifest import tokens_scale_with_samples

SPACE = "tune.space='one vector for the first token'"
SMALL = ("engine=fake", SPACE, "limit=12", "tune.points=2", "tune.evaluations=12", "max_new_tokens=20")
FOLDER = "hydra.run.dir=learnt"


@pytest.fixture
def tune(command):
    return lambda *words: command("tune", *SMALL, FOLDER, *words)


def test_it_stops_without_a_search_and_goes_on_when_told_to(tune, command, tmp_path):
    done = tune()
    assert done.returncode == 0, done.stderr
    assert "deviation beyond chance" in done.stdout and "shows nothing to find" in done.stdout
    assert not (tmp_path / "learnt" / "point.json").exists()
    done = tune("tune.anyway=true")
    assert done.returncode == 0, done.stderr
    assert "questions that the search did not see" in done.stdout and "best so far" in done.stderr
    point = json.loads((tmp_path / "learnt" / "point.json").read_text())
    assert len(point["u"]) == 20 and len(point["questions"]) == 12 and set(point["made_for"])
    history = (tmp_path / "learnt" / "search.jsonl").read_text()
    assert len(history.splitlines()) == 12, "one line for each point"
    told = next(line for line in done.stdout.splitlines() if line.startswith("To use the point"))
    following = shlex.split(told.partition("soft-reasoning ")[2])
    assert following[-2:] == ["max_new_tokens=20", "dataset.offset=12"]
    after = command(*following, "limit=2")
    assert after.returncode == 0, after.stderr
    again = tune("tune.anyway=true")
    assert (tmp_path / "learnt" / "search.jsonl").read_text() == history
    assert again.stdout == done.stdout
    assert "deviation beyond chance" in (tmp_path / "learnt" / "tune.md").read_text()
    without = tune()
    assert "shows nothing to find" in without.stdout
    other = tune("limit=11")
    assert other.returncode == 2 and "questions:" in other.stderr and "another configuration" in other.stderr
    fresh = tune("limit=11", "fresh=true")
    assert fresh.returncode == 0 and not (tmp_path / "learnt" / "point.json").exists()


def test_a_run_decodes_after_the_point_on_questions_that_it_was_not_found_on(tune, command):
    assert tune("tune.anyway=true").returncode == 0
    words = ("engine=fake", "method=soft_token", "point=learnt/point.json", "limit=3", "max_new_tokens=20")
    refused = command("run", *words)
    assert (
        refused.returncode == 2 and "point: expected questions that it was not learnt from" in refused.stderr
    )
    assert refused.stderr.count("\n") == 1
    done = command("run", *words, "dataset.split=validation", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    vote = command("run", *words, "dataset.split=validation", "k=3", "temperature=0.8")
    assert vote.returncode == 0, vote.stderr
    manifest = json.loads(Path("run/manifest.json").read_text())
    assert set(manifest["plugins"]) == {"point.json"}
    point = json.loads(Path("learnt/point.json").read_text())
    point["vectors"][0][0] += 1
    Path("learnt/point.json").write_text(json.dumps(point))
    changed = command("run", *words, "dataset.split=validation", "hydra.run.dir=run", "limit=4")
    assert changed.returncode == 2 and "source of point.json" in changed.stderr
    other = command("run", *words, "dataset.split=validation", "prompt=math")
    assert other.returncode == 2 and "made for this prompt" in other.stderr


def test_the_tokens_of_one_greedy_solution_and_of_a_vote_that_ends_early_do_not_scale():
    greedy = {"name": "soft_token", "samples": 1, "temperature": 0.0}
    early, all_samples = (
        compose_config([f"method={name}"]).method for name in ("mixed_consistency", "self_consistency")
    )
    methods = (greedy, early, greedy | {"temperature": 0.8}, all_samples)
    assert [tokens_scale_with_samples(method) for method in methods] == [False, False, True, True]


@pytest.mark.slow
def test_a_probe_is_fitted_and_judges_a_run_on_other_questions(command):
    words = ("tune=probe", "limit=12", "max_new_tokens=60", "tune.samples=3", FOLDER)
    done = command("tune", *words)
    assert done.returncode == 0, done.stderr
    assert "Fitted on" in done.stdout and "AUC" in done.stdout
    told = json.loads(Path("learnt/manifest.json").read_text())["command"]
    assert told.startswith("soft-reasoning tune tune=probe limit=12")
    mixed, judged = ("method=mixed_consistency",), ("method=best_of_n", "verifier=probe")
    for method in (mixed, judged):
        refused = command("run", *method, "prompt=math", "probe=learnt/probe.json", "limit=3")
        assert refused.returncode == 2 and "probe: expected questions that it was" in refused.stderr
        assert refused.stderr.count("\n") == 1
    judged += ("probe=learnt/probe.json", "limit=3")
    done = command("run", *judged, "dataset.split=validation", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(Path("run/manifest.json").read_text())["plugins"]) == {"probe.json"}
    refused = command("tune", "engine=fake", *words[:-1], "hydra.run.dir=other")
    assert refused.returncode == 2 and "expected an engine with hidden states" in refused.stderr
    refused = command("tune", "tune=telepathy")
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and "default, probe" in refused.stderr


@pytest.mark.slow
def test_a_folder_has_one_writer_and_a_signal_ends_it_between_two_steps(tmp_path):
    words = (SPACE, "tune.points=2", "tune.anyway=true", "limit=20")
    main = "from soft_reasoning.cli.main import main; main()"
    command = [sys.executable, "-c", main, "tune", *words, f"hydra.run.dir={tmp_path}"]
    options = {
        "env": {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        "cwd": tmp_path,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    with subprocess.Popen(command, **options) as process:
        assert any("best so far" in line for line in process.stderr), "it searches"
        second = subprocess.run(command, **options, check=False)
        process.send_signal(signal.SIGTERM)
        error = process.stderr.read()
    assert second.returncode == 2 and "is in use by another run" in second.stderr
    assert process.returncode == 130, error
    assert error.endswith("soft_reasoning: interrupted; the same command continues\n")
    assert not (tmp_path / "point.json").exists() and (tmp_path / "completions.sqlite").exists()
