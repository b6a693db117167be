"""Formulas through Math-Verify, whose process may die."""

import logging
import os
import resource
import signal
from itertools import combinations
from unittest.mock import Mock

import pytest

from soft_reasoning.answers import equal
from soft_reasoning.answers.latex import START, VERIFIED, MathVerifyProcess
from soft_reasoning.types import UserError


@pytest.fixture
def worker():
    made = MathVerifyProcess(seconds=0.5)
    yield made
    made.close()


def test_a_killed_process_is_replaced(worker, caplog):
    assert worker.ask(str.upper, "a") == "A"
    [process] = worker.pool._processes.values()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with caplog.at_level(logging.WARNING):
        assert [worker.ask(str.upper, "a"), worker.ask(str.upper, "a")][-1] == "A"


@pytest.mark.parametrize(
    ("function", "text", "said"),
    [(lambda text: signal.pause(), "a", "'a': too slow"), (lambda text: os._exit(1), "a", "'a': Terminated")],
)
def test_a_text_that_ends_the_process_has_no_answer(worker, caplog, function, text, said):
    with caplog.at_level(logging.WARNING):
        assert worker.ask(function, text) is None
    assert said in caplog.text and worker.pool is None
    assert worker.ask(str.upper, "b") == "B"


def test_memory_is_bounded(caplog):
    small = MathVerifyProcess(seconds=30, memory=2**30)
    with caplog.at_level(logging.WARNING):
        assert small.ask(VERIFIED, "$10^{10^{10}}$", "$x$") in (None, False)
        assert small.ask(lambda text: len(bytes(2**31)), "a") is None
    assert "MemoryError" in caplog.text
    small.close()


SAME = [
    ("\\dfrac{x}{2}", "\\frac{x}{2}"),
    ("\\frac{\\sqrt{2}}{2}", "\\frac{1}{\\sqrt{2}}"),
    ("x+1", "1+x"),
    ("0.5", "\\frac{1}{2}"),
    ("(1,2)", "(1, 2)"),
    ("x=y+1", "x=1+y"),
    ("1,234", "1234"),
    ("10\\text{ cm}", "10"),
    ("\\{2,5\\}", "\\{5,2\\}"),
]
OTHER = [
    ("x+1", "x+2"),
    ("(1,2)", "(2,1)"),
    ("2x", "2"),
    ("\\sqrt{2}", "2"),
    ("{", "}{"),
    ("(0,1)", "[0,1]"),
    ("3, 4", "3"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_formulas_that_mean_the_same(a, b):
    assert equal(a, b, "latex") and equal(b, a, "latex")


@pytest.mark.parametrize(("a", "b"), OTHER)
def test_formulas_that_do_not(a, b):
    assert not equal(a, b, "latex") and not equal(b, a, "latex")


def differ(a, b):
    return not equal(a, b, "latex") and not equal(b, a, "latex")


@pytest.mark.parametrize(("one", "other"), combinations(["cm", "m", "minutes"], 2))
def test_units_differ(one, other):
    for form in ("10\\text{{ {}}}", "10\\,\\mathrm{{{}}}"):
        assert differ(form.format(one), form.format(other))


@pytest.mark.parametrize(("one", "other"), combinations(["10", "10_2", "10_{16}"], 2))
def test_bases_differ(one, other):
    assert differ(one, other)


@pytest.mark.parametrize("memory", [1, 2**20])
def test_a_process_that_cannot_start_is_an_error_and_not_unequal(memory):
    small = MathVerifyProcess(memory=memory)
    with pytest.raises(UserError, match="Math-Verify's process did not start") as error:
        small.ask(VERIFIED, "$1$", "$1$")
    assert "\n" not in str(error.value)
    with pytest.raises(UserError):  # not remembered as an answer
        small.ask(VERIFIED, "$1$", "$1$")


@pytest.mark.parametrize("error", [ValueError("current limit exceeds maximum limit"), OSError(22, "Invalid")])
def test_a_system_that_refuses_the_limit_runs_without_it(monkeypatch, error):
    monkeypatch.setattr("resource.setrlimit", Mock(side_effect=error))
    monkeypatch.setattr("signal.signal", Mock())
    monkeypatch.setattr("logging.disable", Mock())
    START(2**32)
    resource.setrlimit.assert_called_once()
