"""The script sr: its usage before it makes an environment, and what it passes on."""

import os
import subprocess
from pathlib import Path

import pytest

from soft_reasoning.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]


def sr(tmp_path, *arguments, **environment):
    env = {**os.environ, "SOFT_REASONING_VENV": "venv", **environment}
    return subprocess.run([ROOT / "sr", *arguments], cwd=tmp_path, capture_output=True, text=True, env=env)


@pytest.mark.parametrize(("arguments", "code"), [((), 2), (("walk",), 2), (("--help",), 0), (("-h",), 0)])
def test_usage_comes_before_an_environment(tmp_path, arguments, code):
    done = sr(tmp_path, *arguments, PYTHON="/nowhere/python")
    assert done.returncode == code and (done.stdout + done.stderr).startswith("usage: ./sr COMMAND")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [*COMMANDS, "docs", "test"])
def test_every_command_makes_its_environment(tmp_path, command):
    done = sr(tmp_path, command, PYTHON="/nowhere/python")
    assert done.returncode == 127 and "/nowhere/python" in done.stderr
