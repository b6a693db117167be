"""The script sr: its usage before it makes an environment, and what it passes on."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def sr(tmp_path, *arguments, **environment):
    return subprocess.run(
        [ROOT / "sr", *arguments], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "SOFT_REASONING_VENV": "venv", **environment},
    )  # fmt: skip


@pytest.mark.parametrize(("arguments", "code"), [((), 2), (("walk",), 2), (("--help",), 0), (("-h",), 0)])
def test_usage_comes_before_an_environment(tmp_path, arguments, code):
    done = sr(tmp_path, *arguments, PYTHON="/nowhere/python")
    assert done.returncode == code and (done.stdout + done.stderr).startswith("usage: ./sr COMMAND")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "extras", "weights"),
    [
        (["run", "limit=5"], "plots", False),
        (["run", "+experiment=smollm2"], "plots,gguf", True),
        (["serve"], "plots,serve", False),
        (["test"], "all", True),
    ],
)
def test_each_command_installs_what_it_needs_once(tmp_path, arguments, extras, weights):
    (tmp_path / "venv/bin").mkdir(parents=True)
    for name in ("python", "soft-reasoning", "ruff", "pyright"):
        (tmp_path / "venv/bin" / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/calls\n')
        (tmp_path / "venv/bin" / name).chmod(0o755)
    for _ in range(2):
        assert sr(tmp_path, *arguments).returncode == 0
    installs = [line for line in (tmp_path / "calls").read_text().splitlines() if "pip install" in line]
    assert len(installs) == 1 + weights and installs[0].endswith(f"--editable {ROOT}[{extras}]")
