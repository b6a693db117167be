"""What tests of commands share."""

import logging
import sys
from types import SimpleNamespace

import pytest
from hypothesis import settings

from soft_reasoning.cli import main as entry

pytest.register_assert_rewrite("tests.contracts")
settings.register_profile("patient", deadline=None)  # a machine under load takes its time
settings.load_profile("patient")


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs ``soft-reasoning WORDS`` in this process, in an empty folder; SystemExit becomes a return code."""

    def call(*words):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["soft-reasoning", *words])
        capsys.readouterr()
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            entry.main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        finally:  # --info leaves a handler behind that would write to this test's stream in the next
            root.handlers[:] = handlers
            root.setLevel(level)
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return call


@pytest.fixture
def run(command):
    """Runs ``soft-reasoning run WORDS`` likewise."""
    return lambda *words: command("run", *words)
