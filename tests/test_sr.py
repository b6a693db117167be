"""The script sr: what it does before it makes an environment, and where it runs."""

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
    assert done.returncode == code and (done.stdout + done.stderr).startswith("usage: ./sr run")
    assert not list(tmp_path.iterdir())


def test_a_run_is_where_its_caller_is_and_the_tests_where_they_lie(tmp_path):
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "installed").touch()
    python = tmp_path / "venv" / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$PWD" "$@"\n')
    python.chmod(0o755)
    assert sr(tmp_path, "run", "a=b c").stdout == f"{tmp_path} -m soft_reasoning.run a=b c\n"
    assert sr(tmp_path, "test", "-q").stdout == f"{ROOT} -m pytest -q\n"
    assert (
        sr(tmp_path, "docs", "-E").stdout
        == f"{ROOT} -m sphinx -W --keep-going -c docs -E . docs/_build/html\n"
    )


def test_all_tests_are_checks_and_what_is_not_slow_on_every_core(tmp_path):
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "installed").touch()
    for name in ("python", "ruff", "pyright"):
        program = tmp_path / "venv" / "bin" / name
        program.write_text(f'#!/bin/sh\necho {name} "$OMP_NUM_THREADS" "$@"\n')
        program.chmod(0o755)
    done = sr(tmp_path, "test", OMP_NUM_THREADS="").stdout.splitlines()
    assert [line.split()[0] for line in done] == ["ruff", "ruff", "pyright", "python"]
    assert done[-1] == "python 1 -m pytest -n auto --dist worksteal -m not slow"
