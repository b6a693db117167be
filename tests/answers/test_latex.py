import logging
import os
import signal

import pytest

from soft_reasoning.answers import algebra, equal
from soft_reasoning.answers.algebra import Worker
from soft_reasoning.types import UserError

OBEDIENT = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    print(1, flush=True)
"""
DIES_ONCE = """
import pathlib, sys
print("ready", flush=True)
flag = pathlib.Path(__file__).with_suffix(".flag")
for line in sys.stdin:
    if not flag.exists():
        flag.touch()
        sys.exit(1)
    print(1, flush=True)
"""
ALWAYS_DIES = """
import sys
print("ready", flush=True)
sys.stdin.readline()
"""
HANGS_ON_LONG = """
import sys, time
print("ready", flush=True)
for line in sys.stdin:
    time.sleep(60 if "tower" in line else 0)
    print(1, flush=True)
"""


@pytest.fixture
def worker(tmp_path):
    workers = []

    def start(source, **options):
        script = tmp_path / "worker.py"
        script.write_text(source)
        workers.append(Worker(script, **options))
        return workers[-1]

    yield start
    for one in workers:
        one.close()


def test_a_killed_worker_is_replaced(worker):
    one = worker(OBEDIENT)
    assert one.equivalent("a", "b")
    first = one._process.pid
    os.kill(first, signal.SIGKILL)
    assert one.equivalent("a", "b") and one._process.pid != first


def test_a_worker_that_dies_over_a_question_is_asked_again(worker):
    assert worker(DIES_ONCE).equivalent("a", "b")


def test_a_question_that_ends_two_workers_counts_as_unequal(worker, caplog):
    with caplog.at_level(logging.WARNING):
        assert worker(ALWAYS_DIES).equivalent("a", "b") is False
    assert "ended its worker twice" in caplog.text


def test_a_question_that_takes_too_long_counts_as_unequal(worker, caplog):
    one = worker(HANGS_ON_LONG, timeout=0.5)
    with caplog.at_level(logging.WARNING):
        assert one.equivalent("tower", "b") is False
    assert "took over 0.5 s" in caplog.text
    one.timeout = 30
    assert one.equivalent("a", "b")


def test_without_math_verify_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(algebra.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"soft-reasoning\[math\]"):
        algebra.equivalent("x+1", "1+x and no other")


def test_what_needs_no_algebra_needs_no_worker(monkeypatch):
    monkeypatch.setattr(algebra.importlib.util, "find_spec", lambda name: None)
    assert equal("\\dfrac{x}{2}", "\\frac{x}{2}", "latex")
    assert equal("0.5", "\\frac{1}{2}", "latex") and not equal("0.5", "\\frac{1}{3}", "latex")


def test_algebra():
    pytest.importorskip("math_verify", reason="the math extra is not installed")
    root = ("\\frac{\\sqrt{2}}{2}", "\\frac{1}{\\sqrt{2}}")
    for a, b in [root, ("x+1", "1+x"), ("(1,2)", "(1, 2)"), ("x=y+1", "x=1+y")]:
        assert equal(a, b, "latex") and equal(b, a, "latex"), (a, b)
    for a, b in [("x+1", "x+2"), ("(1,2)", "(2,1)"), ("2x", "2"), ("\\sqrt{2}", "2"), ("{", "}{")]:
        assert not equal(a, b, "latex") and not equal(b, a, "latex"), (a, b)
