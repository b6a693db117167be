"""The command line: what a user types and what comes back."""

import shutil
from pathlib import Path

import pytest

from soft_reasoning.engine.paths import DEMO_FOLDER
from soft_reasoning.lab.runs import runner

FAKE = ["engine=fake", "progress=false", "max_new_tokens=40"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["method=telepathy"], "random_embedding"),
        (["d=1000000"], "d: expected a whole number of at most 16384, got 1000000"),
        (["budget=fair"], "budget: expected one of own, equal"),
        (["methods=cot"], "methods: expected a list such as [cot,"),
        (
            ["methods=[cot,[self_consistency,'limit=3']]"],
            "expected one seed and data set for all",
        ),
        (["-m", "cot"], "cot: expected key=value"),
        (
            ["budget=equal", "methods=[cot,[self_consistency,'method.samples=3']]"],
            "methods: expected the number of samples as k under budget=equal, got ['self_consistency',",
        ),
        (["acquisition=ei", "acquisition._target_=botorch.acquisition.Nope"], "acquisition.Nope"),
        (["experiment=sweep_sigma"], "+experiment="),
        (["methods=[[cot,k=5]]"], "into quotes"),
        (["hydra.run.dir=/dev/null/runs"], "/dev/null"),
        (["method=[1,2]"], "method: expected the name of a choice, got [1,2]"),
        (["preset=[]"], "preset: expected the name of a choice, got []"),
        (["method=null"], "method: expected the name of a choice, got null"),
        (["+experiment=null"], "experiment: expected the name of a choice, got null"),
        (["=5"], "=5: expected key=value"),
        (["point=null", "method=soft_token"], "point: expected a path, got None"),
        (["+method._partial_=true"], "method: expected an object with solve, got functools.partial"),
        (["verifier._target_=builtins.dict"], "verifier: expected an object with verify, got {}"),
        (["method.verifier=null"], "method.verifier: expected an object with verify, got None"),
        (
            ["+experiment=swep_sigma"],
            "a name that exists, got swep_sigma; did you mean sweep_sigma?",
        ),
        (["label=[a]"], "label: expected a text, got ['a']"),
        (["label=é"], "label=é: expected key=value, got something else; put a value with other"),
        (["delta=0.2,0.5"], "delta=0.2,0.5: expected one value, got several; soft-reasoning sweep runs each"),
        (["hydra.run.dir="], "hydra.run.dir: expected a whole path, got none; . is this folder"),
        (["prompt='~nobody-here/p.yaml'"], "prompt: expected a home directory for ~, got ~nobody-here/p."),
        (["model='~nobody-here/m'"], "model: expected a home directory for ~, got ~nobody-here/m"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2_and_leaves_no_folder(run, tmp_path, arguments, expected):
    done = run(*FAKE, "limit=2", *arguments)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("soft_reasoning: ")
    assert expected in lines[0]
    assert "To append" not in lines[0] and ".," not in lines[0] and "HYDRA_FULL_ERROR" not in lines[0]
    assert done.stdout == "" and not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("++engine._target_=builtins.dict", "engine: expected an object with step, got {"),
        ("grader._target_=builtins.dict", "grader: expected an object with extract, got {"),
        ("prompt.system=[a]", "prompt: expected system as text and chat_options by name, got ['a']"),
        ("prompt.chat_options=5", "prompt: expected system as text and chat_options by name"),
    ],
)
def test_what_is_found_when_a_run_begins_is_one_line_too(run, word, expected):
    done = run(*FAKE, "limit=2", word)
    assert done.returncode == 2 and done.stderr.startswith(f"soft_reasoning: {expected}")
    assert len(done.stderr.splitlines()) == 1


def test_hydra_s_own_help_needs_no_options(run):
    assert "Use '--cfg hydra'" in run(*FAKE, "--hydra-help").stdout


def test_a_home_is_found_or_named(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert run(*FAKE, "limit=1", "cache='~/c'").returncode == 0
    assert (tmp_path / "home" / "c").is_dir()
    done = run(*FAKE, "limit=2", "cache='~nobody-here/c'")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "cache: expected a home directory for ~, got ~nobody-here/c" in done.stderr


def test_a_finished_run_typed_again_loads_no_model(run, tmp_path, monkeypatch):
    model = Path(shutil.copytree(DEMO_FOLDER, tmp_path / "model"))
    command = ["method=cot", f"model={model}", "prompt=demo", "limit=2", "max_new_tokens=4", "progress=false"]
    command.append(f"hydra.run.dir={tmp_path / 'run'}")
    first = run(*command)
    assert first.returncode == 0, first.stderr
    written = [(tmp_path / "run" / name).read_bytes() for name in ("results.json", "manifest.json")]
    with monkeypatch.context() as patched:
        patched.setattr(runner, "build_engine", None)  # calling it fails
        again = run(*command)
        assert (again.returncode, again.stdout) == (0, first.stdout)
        assert written == [
            (tmp_path / "run" / name).read_bytes() for name in ("results.json", "manifest.json")
        ]
        other = run(*command, "seed=1")
        assert other.returncode == 2 and "seed: 0 -> 1" in other.stderr
    samples = tmp_path / "run" / "samples.jsonl"
    first_of_two = samples.read_bytes().splitlines(keepends=True)[0]
    content = bytearray((model / "model.safetensors").read_bytes())
    middle = slice(len(content) // 2, len(content) // 2 + 2**18)  # its first tensors are embeddings
    content[middle] = bytes(len(content[middle]))
    (model / "model.safetensors").write_bytes(content)
    for kept in (samples.read_bytes(), first_of_two):  # of a finished run, and of one that goes on
        samples.write_bytes(kept)
        changed = run(*command)
        assert changed.returncode == 2 and f"weights of {model}" in changed.stderr
        assert samples.read_bytes() == kept
    shutil.copy(DEMO_FOLDER / "model.safetensors", model)
    assert run(*command).returncode == 0 and len(samples.read_bytes().splitlines()) == 2
