"""The script sr: its usage before it makes an environment, and what it passes on."""

import os
import subprocess
from pathlib import Path

import pytest

from soft_reasoning.commands.entry import COMMANDS

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


def test_every_command_is_passed_on_and_runs_where_its_caller_is(tmp_path):
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "installed").touch()
    for name in ("python", "soft-reasoning"):
        program = tmp_path / "venv" / "bin" / name
        program.write_text(f'#!/bin/sh\necho {name} "$PWD" "$@"\n')
        program.chmod(0o755)
    for command in (*COMMANDS, "--version"):
        assert sr(tmp_path, command, "a=b c").stdout == f"soft-reasoning {tmp_path} {command} a=b c\n"
    assert sr(tmp_path, "test", "-q").stdout == f"python {ROOT} -m pytest -q\n"
