import logging
import os
import signal

import pytest

from soft_reasoning.answers import algebra, equal
from soft_reasoning.answers.algebra import Worker
from soft_reasoning.types import UserError

PROGRAM = """
import pathlib, sys, time
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
connection.send("ready")
while True:
    connection.recv()
    {answer}
    connection.send(True)
"""
DIES_ONCE = """
    flag = pathlib.Path(__file__).with_suffix(".flag")
    if not flag.exists():
        flag.touch()
        sys.exit(1)
"""


@pytest.fixture
def worker(tmp_path):
    workers = []

    def start(answer, **options):
        script = tmp_path / "worker.py"
        script.write_text(PROGRAM.replace("    {answer}", answer))
        workers.append(Worker(script, **options))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def test_a_killed_worker_is_replaced(worker):
    obedient = worker("")
    assert obedient.ask("same", "a", "b")
    first = obedient.process.pid
    os.kill(first, signal.SIGKILL)
    assert obedient.ask("same", "a", "b") and obedient.process.pid != first


def test_a_worker_that_dies_over_a_question_is_asked_again(worker):
    assert worker(DIES_ONCE).ask("same", "a", "b")


def test_a_question_that_ends_two_workers_has_no_answer(worker, caplog):
    with caplog.at_level(logging.WARNING):
        assert worker("    sys.exit(1)").ask("same", "a", "b") is None
    assert "ended its worker twice" in caplog.text


def test_a_question_that_takes_too_long_has_no_answer(worker, caplog):
    slow = worker("    time.sleep(60)", timeout=0.5)
    with caplog.at_level(logging.WARNING):
        assert slow.ask("same", "a", "b") is None
    assert "took over 0.5 s" in caplog.text and slow.process is None


def test_only_what_needs_algebra_needs_the_extra(monkeypatch):
    monkeypatch.setattr(algebra.importlib.util, "find_spec", lambda name: None)
    assert equal("\\dfrac{x}{2}", "\\frac{x}{2}", "latex")
    assert equal("0.5", "\\frac{1}{2}", "latex") and not equal("0.5", "\\frac{1}{3}", "latex")
    with pytest.raises(UserError, match=r"soft-reasoning\[math\]"):
        equal("x+1", "1+x and no other", "latex")


def test_algebra():
    pytest.importorskip("math_verify", reason="the math extra is not installed")
    root = ("\\frac{\\sqrt{2}}{2}", "\\frac{1}{\\sqrt{2}}")
    for a, b in [root, ("x+1", "1+x"), ("(1,2)", "(1, 2)"), ("x=y+1", "x=1+y")]:
        assert equal(a, b, "latex") and equal(b, a, "latex"), (a, b)
    for a, b in [("x+1", "x+2"), ("(1,2)", "(2,1)"), ("2x", "2"), ("\\sqrt{2}", "2"), ("{", "}{")]:
        assert not equal(a, b, "latex") and not equal(b, a, "latex"), (a, b)
