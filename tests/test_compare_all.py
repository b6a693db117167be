"""``compare --all``: what drops out after each stage, and the preset that it writes."""

import json

import pytest

from soft_reasoning import UserError
from soft_reasoning.commands.halving import ranked, write_preset
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.configuration.overrides import parse
from soft_reasoning.runs.runner import Summary

FAKE = ("engine=fake", "progress=false", "max_new_tokens=12", "dataset.split=validation")


def summary(accuracy, tokens):
    return Summary(None, {"exact_match": accuracy, "tokens": {"total": {"generated": tokens}}})


def test_the_more_accurate_comes_first_and_of_equals_the_cheaper():
    assert ranked({"a": summary(0.5, 9), "b": summary(0.7, 9), "c": summary(0.5, 3)}) == ["b", "c", "a"]
    with pytest.raises(UserError, match="expected questions with reference answers"):
        ranked({"a": summary(None, 9)})


@pytest.mark.slow
def test_half_drops_out_and_the_best_is_a_preset(command, tmp_path):
    names = ("cot", "self_consistency", "program", "deepconf", "fire")
    words = ("compare", "--all", *names, *FAKE, "limit=8", "max_tokens=60", "hydra.run.dir=out")
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert "program is left out: " in done.stderr
    runs = sorted((tmp_path / "out").glob("stage-*/*/samples.jsonl"))
    assert [len(path.read_text().splitlines()) for path in runs] == [2, 2, 2, 2, 0, 4, 4, 8]  # 0: program
    best = runs[-1].parent.name
    earlier = tmp_path / "out" / "stage-2" / best / "samples.jsonl"
    assert runs[-1].read_bytes().startswith(earlier.read_bytes())
    config = compose_config([f"preset={tmp_path / 'out' / 'preset.yaml'}", "engine=fake"])
    assert (config.method.name, config.max_tokens, config.max_new_tokens) == (best, 60, 12)
    assert config.dataset.split == "test" and config.limit is None
    [row] = json.loads((tmp_path / "out" / "stage-3" / "comparison.json").read_text())
    assert row["label"] == best
    written = {path: path.stat().st_mtime_ns for path in runs}
    again = command(*words)
    assert again.stdout.splitlines()[-1] == done.stdout.splitlines()[-1], again.stderr
    assert written == {path: path.stat().st_mtime_ns for path in runs}
    for bad in ("cto", "slot k=3", "k=3"):
        error = command("compare", "--all", "cot", bad, *FAKE).stderr
        assert error.startswith("soft_reasoning: compare --all: expected names of methods") and bad in error


def test_a_preset_keeps_the_method_s_own_options_and_must_hold_some(tmp_path):
    file = tmp_path / "mine.yaml"
    write_preset(
        file, parse(["model=demo", "dataset.split=validation", "method=deepconf", "method.final.keep=0.5"])
    )
    config = compose_config([f"preset={file}", "method.samples=3"])
    assert (config.method.samples, config.method.final.keep) == (3, 0.5)
    file.write_text("method: cot\n")
    with pytest.raises(UserError, match="preset: expected a file that holds overrides, got"):
        compose_config([f"preset={file}"])
