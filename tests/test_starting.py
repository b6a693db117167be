"""Ctrl-C and SIGTERM: one line, one exit code, nothing lost."""

import os
import signal

import pytest

from soft_reasoning.answers.latex import VERIFIED, MathVerifyProcess
from soft_reasoning.cli.launch import one_line_errors

SIGNALS = ["SIGINT", "SIGTERM"]


@pytest.fixture(autouse=True)
def heard():
    """Whoever runs the tests may ignore them, as a shell does in the background."""
    before = {name: signal.signal(getattr(signal, name), signal.default_int_handler) for name in SIGNALS}
    yield
    for name, handler in before.items():
        signal.signal(getattr(signal, name), handler)


@pytest.mark.parametrize("name", SIGNALS)
def test_each_of_them_is_one_line_and_one_code(capsys, name):
    with pytest.raises(SystemExit) as stopped, one_line_errors():
        signal.raise_signal(getattr(signal, name))
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "soft_reasoning: interrupted; the same command continues\n"


def test_the_grader_s_worker_leaves_ctrl_c_to_its_parent():
    worker = MathVerifyProcess()
    assert worker.ask(VERIFIED, "$1/2$", "$0.5$")
    [process] = worker.pool._processes
    os.kill(process, signal.SIGINT)
    assert worker.ask(VERIFIED, "$2/4$", "$0.5$") and [*worker.pool._processes] == [process]
    worker.close()
