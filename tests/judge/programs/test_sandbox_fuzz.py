"""Random programs give in the sandbox what CPython gives, in flat memory and time."""

import math
import time
import warnings

import psutil
import pytest

from soft_reasoning.judge.programs.sandbox import Sandbox
from tests.judge.programs.random_programs import Programmer

SANDBOX = Sandbox(seconds=2.0)
BATCH = 100
"""Programs of one interpreter process."""


def in_python(program: str):
    """(value, error): what CPython makes of one of our own random programs."""
    scope: dict[str, object] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            exec(program, scope)
        return scope["solution"](), None
    except Exception as error:
        return None, error


def same(a, b):
    """Whether two values are of the same types and equal: NaN to NaN, floats but for their last bit.

    ``round(x, 2)`` of a number of 18 digits may differ there.
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, float):
        return math.isclose(a, b, rel_tol=4e-16) or math.isnan(a) and math.isnan(b)
    return a == b


def compare(first: int, count: int):
    """(agreeing, differing programs, only CPython accepts, only the sandbox accepts, seconds, MiB grown)

    Memory is that of this process while the sandbox runs; CPython's own ``exec`` takes some for itself.
    """
    agreeing, differing, only_python, only_sandbox, seconds, grown = 0, [], [], [], 0.0, 0.0
    for begin in range(first, first + count, BATCH):
        programs = [Programmer(seed).program() for seed in range(begin, min(begin + BATCH, first + count))]
        started, before = time.monotonic(), memory()
        outcomes = SANDBOX.run(programs)
        seconds, grown = seconds + time.monotonic() - started, grown + memory() - before
        for program, outcome in zip(programs, outcomes, strict=True):
            value, error = in_python(program)
            if error is None and outcome.error is None:
                if same(value, outcome.value):
                    agreeing += 1
                else:
                    differing.append((program, value, outcome.value))
            elif error is None:
                only_python.append((program, value, outcome.error))
            elif outcome.error is None and not isinstance(error, SyntaxError):  # f-strings as of Python 3.12
                only_sandbox.append((program, error, outcome.value))
    return agreeing, differing, only_python, only_sandbox, seconds, grown


def memory():
    return psutil.Process().memory_info().rss / 2**20


def report(done):
    agreeing, differing, only_python, only_sandbox, seconds, grown = done
    return (
        f"{agreeing} programs give what CPython gives, {len(differing)} another value; CPython alone accepts "
        f"{len(only_python)}, the sandbox alone {len(only_sandbox)}; {seconds:.1f} s, {grown:.1f} MiB"
    )


def test_some_random_programs_agree_with_cpython():
    done = compare(0, 300)
    print(report(done))
    assert not done[1], done[1][0]
    assert not done[3], done[3][0]
    assert done[0] > 60


@pytest.mark.slow  # minutes
def test_ten_thousand_random_programs_agree_with_cpython_in_flat_memory_and_time():
    others = {*psutil.Process().children()}  # of other tests
    compare(0, 500)  # what is allocated once
    parts = [compare(first, 1000) for first in range(0, 10_000, 1000)]
    total = [sum(values[1:], values[0]) for values in zip(*parts, strict=True)]
    agreeing, differing, only_python, only_sandbox, _, grown = total
    print(report(total), [f"{part[4]:.1f} s" for part in parts])
    assert not differing, differing[0]
    assert not only_sandbox, only_sandbox[0]
    assert agreeing > 4000 and len(only_python) < 50
    assert grown < 16
    assert {*psutil.Process().children()} <= others
