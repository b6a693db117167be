"""Ctrl-C, SIGTERM, SIGHUP and too little memory: one line, the exit code of convention, nothing lost."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from soft_reasoning.answers.latex import VERIFIED, MathVerifyProcess
from soft_reasoning.cli.launch import one_line_errors
from soft_reasoning.lab.runs.signals import SIGNALS

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


def swallowed():
    """A library that turns every error into another."""
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
    except BaseException:
        raise TypeError("NoneType") from None


@pytest.mark.parametrize("error", [None, ValueError("of a worker that got the signal too")])
def test_no_library_can_lose_a_signal_or_turn_it_into_an_error(capsys, error):
    with pytest.raises(SystemExit) as stopped, one_line_errors():
        swallowed()
        if error is not None:
            raise error
    assert stopped.value.code == 143
    assert capsys.readouterr().err == "soft_reasoning: ended by SIGTERM; the same command continues\n"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_another_signal_ends_the_process_at_once(tmp_path):
    code = (
        "import os, signal, time; from soft_reasoning.cli.launch import one_line_errors\n"
        "with one_line_errors():\n"
        "    os.kill(os.getpid(), signal.SIGINT); print('noted', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert ended.stdout == "noted\n" and ended.returncode == -signal.SIGTERM and not ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_at_any_time_of_a_start_ends_the_run(tmp_path, name):
    """Before the handlers are there, the signal itself ends it, as it does a shell."""
    draw, number = random.Random(name), getattr(signal, name)
    main = "from soft_reasoning.cli.main import main; print('begun', flush=True); main()"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    for _ in range(6):
        words = [sys.executable, "-c", main, "run", "limit=3", "progress=false"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(words, cwd=tmp_path, env=environment, **pipes) as process:
            assert process.stdout.readline() == "begun\n"
            time.sleep(0.02 + draw.uniform(0, 3))
            process.send_signal(number)
            error = process.communicate(timeout=60)[1]
        assert process.returncode in (CODES[name], -number), error
        assert "Traceback" not in error and len(error.splitlines()) <= 2, error


def test_the_grader_s_worker_leaves_ctrl_c_to_its_parent():
    worker = MathVerifyProcess()
    assert worker.ask(VERIFIED, "$1/2$", "$0.5$")
    [process] = worker.pool._processes
    os.kill(process, signal.SIGINT)
    assert worker.ask(VERIFIED, "$2/4$", "$0.5$") and [*worker.pool._processes] == [process]
    worker.close()
