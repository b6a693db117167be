"""Ctrl-C, SIGTERM, SIGHUP and too little memory: one line, the exit code of convention, nothing lost."""

import json
import os
import signal

import pytest

from soft_reasoning.answers.algebra import Worker
from soft_reasoning.commands import run as program
from soft_reasoning.commands.launch import SIGNALS, one_line_errors
from soft_reasoning.engines.fake import FakeEngine

CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}


@pytest.fixture(autouse=True)
def heard():
    """Whoever runs the tests may ignore them, as a shell does in the background."""
    defaults = {"SIGINT": signal.default_int_handler}
    before = {
        name: signal.signal(getattr(signal, name), defaults.get(name, signal.SIG_DFL)) for name in SIGNALS
    }
    yield
    for name, handler in before.items():
        signal.signal(getattr(signal, name), handler)


@pytest.mark.parametrize("name", SIGNALS)
def test_each_of_them_is_one_line_and_its_code(capsys, name):
    with pytest.raises(SystemExit) as stopped, one_line_errors():
        os.kill(os.getpid(), getattr(signal, name))
    assert stopped.value.code == CODES[name]
    assert capsys.readouterr().err == f"soft_reasoning: ended by {name}; the same command continues\n"


def test_the_same_command_continues_after_sigterm(tmp_path, monkeypatch, capsys):
    command = [
        "engine=fake", "method=cot", "limit=6", "max_live=2", "max_new_tokens=20",
        "progress=false", f"hydra.run.dir={tmp_path / 'run'}",
    ]  # fmt: skip
    add, calls = FakeEngine.add, []

    def ended(engine, requests):
        calls.append(requests)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return add(engine, requests)

    with monkeypatch.context() as patch:
        patch.setattr(FakeEngine, "add", ended)
        with pytest.raises(SystemExit) as stopped:
            program.main(command)
    said = capsys.readouterr().err
    assert stopped.value.code == 143 and "Traceback" not in said
    assert "stopped: 4 of 6 problems are stored" in said
    assert said.splitlines()[-1] == "soft_reasoning: ended by SIGTERM; the same command continues"
    program.main(command)
    assert "4 of 6 problems are done" in capsys.readouterr().err
    lines = (tmp_path / "run" / "samples.jsonl").read_text().splitlines()
    assert len({json.loads(line)["doc_id"] for line in lines}) == len(lines) == 6


def test_the_grader_s_worker_leaves_ctrl_c_to_its_parent():
    pytest.importorskip("math_verify", reason="the math extra is not installed")
    worker = Worker()
    assert worker.ask("same", "1/2", "0.5")
    process = worker.process
    os.kill(process.pid, signal.SIGINT)
    assert worker.ask("same", "2/4", "0.5") and worker.process is process
