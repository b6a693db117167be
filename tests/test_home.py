"""``~`` without a home directory is one line that names the option, wherever an option is a path."""

import os

import pytest

from soft_reasoning.checks import OptionError
from soft_reasoning.reasoner import SoftReasoner
from soft_reasoning.task.probe import Probe
from soft_reasoning.task.space import TaskPoint

WORDS = {
    "engine=fake cache='~nobody-here/c'": "cache",
    "engine=fake dataset='~nobody-here/q.csv'": "dataset.path",
    "engine=fake prompt='~nobody-here/p.yaml'": "prompt",
    "model='~nobody-here/m'": "model",
    "engine=fake verifier=fresh verifier.model='~nobody-here/m'": "model",
}


@pytest.mark.parametrize("words", WORDS)
def test_the_home_of_nobody(run, words):
    done = run("limit=1", "progress=false", "max_new_tokens=4", *words.split())
    assert done.returncode == 2 and not done.stdout, (done.stdout, done.stderr)
    expected = f"soft_reasoning: {WORDS[words]}: expected a home directory for ~, got ~nobody-here/"
    assert expected in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("call", [TaskPoint.load, Probe.load, SoftReasoner.from_pretrained])
def test_from_python(call):
    with pytest.raises(OptionError, match="expected a home directory for ~, got ~nobody-here/x without one"):
        call("~nobody-here/x")


def test_a_home_is_found(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    words = ("engine=fake", "limit=1", "progress=false", "max_new_tokens=4")
    assert run(*words, "cache='~/c'").returncode == 0
    assert "c" in os.listdir(tmp_path / "home")
