"""Ctrl-C, SIGTERM, SIGHUP and too little memory: one line, the exit code of convention, nothing lost."""

import os
import signal

import pytest

from soft_reasoning.answers.latex import VERIFIED, MathVerifyProcess
from soft_reasoning.commands.launch import SIGNALS, one_line_errors

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


def test_the_grader_s_worker_leaves_ctrl_c_to_its_parent():
    worker = MathVerifyProcess()
    assert worker.ask(VERIFIED, "$1/2$", "$0.5$")
    [process] = worker.pool._processes
    os.kill(process, signal.SIGINT)
    assert worker.ask(VERIFIED, "$2/4$", "$0.5$") and [*worker.pool._processes] == [process]
    worker.close()
