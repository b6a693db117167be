"""The command line: what a user types and what comes back."""

import json
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
        (["seed=abc"], "seed: expected a whole number of at least 0, got 'abc'"),
        (["methods=cot"], "methods: expected a list such as [cot,"),
        (["methods=[cot,cot]"], "cot twice"),
        (
            ["methods=[cot,[self_consistency,'limit=3']]"],
            "expected one seed and data set for all",
        ),
        (["methods=[cot,[self_consistency,'k=0']]"], "k: expected a whole number"),
        (["-m", "cot"], "cot: expected key=value"),
        (
            ["budget=equal", "methods=[cot,[self_consistency,'method.samples=3']]"],
            "methods: expected the number of samples as k under budget=equal, got ['self_consistency',",
        ),
        (["acquisition=ei", "acquisition._target_=botorch.acquisition.Nope"], "acquisition.Nope"),
        (
            ["surrogate.kernel._target_=gpytorch.means.ZeroMean"],
            "surrogate.kernel: expected a kernel of GPyTorch",
        ),
        (["+acquisition.betta=5"], "acquisition.betta: expected an option of NoiseAdaptive"),
        (["experiment=sweep_sigma"], "+experiment="),
        (["methods=[[cot,k=5]]"], "into quotes"),
        (["hydra.run.dir=/dev/null/runs"], "/dev/null"),
        (["dataset=custom", "dataset.path=[1,2]"], "dataset.path: expected the path of a file, got "),
        (["method=[1,2]"], "group: expected the name of a choice"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2_and_leaves_no_folder(run, tmp_path, arguments, expected):
    done = run(*FAKE, "limit=2", *arguments)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("soft_reasoning: ")
    assert any(part in lines[0] for part in expected.split("|")), lines[0]
    assert "To append" not in lines[0] and ".," not in lines[0] and "HYDRA_FULL_ERROR" not in lines[0]
    assert done.stdout == "" and not (tmp_path / "runs").exists()


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
        (model / "model.safetensors").write_bytes(b"")
        changed = run(*command)
        assert changed.returncode == 2 and f"weights of {model}" in changed.stderr


@pytest.mark.slow
def test_weights_that_changed_in_their_folder_are_refused(run, tmp_path):
    model = Path(shutil.copytree(DEMO_FOLDER, tmp_path / "model"))
    command = ["method=cot", f"model={model}", "prompt=demo", "limit=3", "max_new_tokens=4", "progress=false"]
    command.append(f"hydra.run.dir={tmp_path / 'run'}")
    assert run(*command).returncode == 0
    samples = tmp_path / "run" / "samples.jsonl"
    samples.write_bytes(b"".join(samples.read_bytes().splitlines(keepends=True)[:2]))
    content = bytearray((model / "model.safetensors").read_bytes())
    middle = slice(len(content) // 2, len(content) // 2 + 2**18)  # its first tensors are embeddings
    content[middle] = bytes(len(content[middle]))
    (model / "model.safetensors").write_bytes(content)
    changed = run(*command)
    assert changed.returncode == 2 and f"weights of {model}" in changed.stderr
    assert len(samples.read_bytes().splitlines()) == 2
    shutil.copy(DEMO_FOLDER / "model.safetensors", model)
    assert run(*command).returncode == 0 and len(samples.read_bytes().splitlines()) == 3


@pytest.mark.slow
def test_an_equal_budget_draws_as_many_samples_as_the_reference_writes_tokens(run, tmp_path):
    here = f"hydra.run.dir={tmp_path / 'run'}"
    methods = "methods=[cot,[self_consistency,'k=3'],best_of_n,soft_reasoning]"
    command = [*FAKE, "limit=4", "budget=equal", methods, here]
    done = run(*command)
    assert done.returncode == 0, done.stderr
    rows = {row["label"]: row for row in json.loads((tmp_path / "run" / "comparison.json").read_text())}
    assert list(rows) == ["cot", "self_consistency", "best_of_n", "soft_reasoning"]
    target = rows["soft_reasoning"]["tokens"]
    assert abs(rows["self_consistency"]["tokens"] - target) <= rows["cot"]["tokens"]  # a sample's
    assert "generates: self_consistency (" in done.stdout
    assert len(list((tmp_path / "run" / "probes").glob("*-k_3"))) == 1

    samples = {path: path.read_bytes() for path in tmp_path.glob("run/*/samples.jsonl")}
    again = run(*command)
    assert again.returncode == 0 and len(samples) == 4
    assert {path: path.read_bytes() for path in tmp_path.glob("run/*/samples.jsonl")} == samples
