"""Ctrl-C and SIGTERM: one line, one exit code, nothing lost."""

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
        os.kill(os.getpid(), getattr(signal, name))
        time.sleep(1)
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "soft_reasoning: interrupted; the same command continues\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_at_any_time_of_a_start_ends_the_run(tmp_path, name):
    """Before the handler is there, the signal itself ends it, as it does a shell."""
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
            process.communicate(timeout=60)
        assert process.returncode in (130, -number)


def test_the_grader_s_worker_leaves_ctrl_c_to_its_parent():
    worker = MathVerifyProcess()
    assert worker.ask(VERIFIED, "$1/2$", "$0.5$")
    [process] = worker.pool._processes
    os.kill(process, signal.SIGINT)
    assert worker.ask(VERIFIED, "$2/4$", "$0.5$") and [*worker.pool._processes] == [process]
    worker.close()
