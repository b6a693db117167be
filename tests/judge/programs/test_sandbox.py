"""Programs in the sandbox: what they may compute; hostile ones come to an error soon and reach nothing."""

import builtins

import psutil
import pytest

from soft_reasoning.judge.programs.sandbox import Outcome, Sandbox
from soft_reasoning.types import UserError

SANDBOX = Sandbox(seconds=0.5)


def solution(*lines):
    return "\n    ".join(["def solution():", *lines])


@pytest.mark.parametrize(
    ("program", "value"),
    [
        (solution("return 6 * 7"), 42),
        ("import math\n\n" + solution("return math.ceil(7 / 2)"), 4),
        (solution("from itertools import combinations", "return len(list(combinations(range(5), 2)))"), 10),
        ("def half(x):\n    return x / 2\n\n" + solution("return half(5)"), 2.5),
        (solution("print('working', end='')", "return 'done'"), "done"),
        (solution("return {'a': 1}.get('b')"), None),
    ],
)
def test_programs_compute(program, value):
    assert SANDBOX.run([program]) == [Outcome(value)]


def test_each_program_begins_afresh():
    first = "x = 5\n" + solution("return x")
    assert SANDBOX.run([first, solution("return x"), first]) == [
        Outcome(5),
        Outcome(error="NameError: name 'x' is not defined"),
        Outcome(5),
    ]


HOSTILE = {
    # time
    "endless loop": solution("while True:", "    pass"),
    "endless loop that catches everything": solution(
        "while True:", "    try:", "        while True: pass", "    except BaseException:", "        pass"
    ),
    "sleep": solution("import time", "time.sleep(60)", "while True: pass"),
    "binomial": solution("import math", "return math.comb(10**7, 10**6 * 5)"),
    "exponential recursion": solution(
        "def f(n):", "    try:", "        f(n + 1)", "    except BaseException:", "        f(n + 1)", "f(0)"
    ),
    # memory
    "huge integer": solution("return 10 ** 10 ** 8"),
    "giant string": solution("return 'a' * 10**10"),
    "giant list": solution("return [0] * 10**10"),
    "growing list": solution("x = [1]", "while True:", "    x += x"),
    "flood of words": solution("while True:", "    print('x' * 1000)"),
    "replaced string": solution("return 'abc'.replace('', 'a' * 10**6).replace('a', 'b' * 10**6)"),
    # depth
    "recursion": solution("return solution()"),
    "deep brackets": solution("return " + "(" * 10**5 + ")" * 10**5),
    # files, network, processes
    "read a file": solution("return open('/etc/passwd').read()"),
    "write a file": solution("open('{path}', 'w').write('x')"),
    "system": solution("import os", "return os.system('touch {path}')"),
    "fork": solution("import os", "while True:", "    os.fork()"),
    "socket": solution("import socket", "return socket.socket()"),
    # the interpreter itself
    "ctypes": solution("import ctypes", "return ctypes.string_at(0)"),
    "import by name": solution("return __import__('os').system('touch {path}')"),
    "evaluated import": solution("return eval(\"__import__('os').system('touch {path}')\")"),
    "subclasses": solution("return ().__class__.__base__.__subclasses__()"),
    "frames": solution("import sys", "return sys._getframe().f_back.f_globals"),
    "pickle": solution("import pickle", "return pickle.loads(b'cos\\nsystem\\n(S\"touch {path}\"\\ntR.')"),
    "garbage": "\x00\xff}}}{{{ def",
    "exit": solution("raise SystemExit(3)"),
    "unknown names": solution("for i in range(10**9):", "    try: unknown", "    except NameError: pass"),
}
"""Programs of which each ends in an error; {path} is a file that none of them may write."""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_programs_come_to_an_error(name, tmp_path, capfd):
    others = {*psutil.Process().children()}  # of other tests
    path = tmp_path / "written"
    program = HOSTILE[name].replace("{path}", str(path))
    before = psutil.Process().memory_info().rss
    hostile, next_one = SANDBOX.run([program, solution("return 1")])
    assert hostile.error and len(hostile.error) <= 200 and "\n" not in hostile.error
    assert "root:" not in hostile.error, "nothing of a file is shown"
    assert next_one == Outcome(1), "the next program runs"
    assert psutil.Process().memory_info().rss - before < 64 * 2**20
    assert not path.exists()
    assert {*psutil.Process().children()} <= others, "no interpreter is left"
    assert capfd.readouterr().out == "", "nothing that a program prints is shown"


@pytest.mark.parametrize(
    "harmless",
    [
        solution("import re", "return str(re.match('(a+)+$', 'a' * 30 + 'b'))"),
        solution("x = []", "for _ in range(10**5): x = [x]", "return x"),
        solution("x = []", "x.append(x)", "return x"),
        solution("return lambda: 1"),
        "async " + solution("return 1"),
        "class A: pass\n" + solution("return A()"),
    ],
)
def test_odd_values_come_back_without_harm(harmless):
    [outcome] = SANDBOX.run([harmless])
    assert outcome.error is None


def test_a_regular_expression_that_blows_up_ends():
    [outcome] = SANDBOX.run([solution("import re", r"return re.match(r'^(\w+\s?)*\1$', 'aaaa ' * 30 + '!')")])
    assert "backtracking" in outcome.error


def test_every_limit_acts():
    slow = solution("return len([i for i in range(2 * 10**5)])")
    loop = solution("while True: pass")
    assert SANDBOX.run([slow])[0].error is None
    assert "time limit" in Sandbox(seconds=0.05).run([loop])[0].error
    wide = solution("return len('a' * 5 * 10**6)")
    assert "memory limit" in Sandbox(megabytes=2).run([wide])[0].error
    assert Sandbox(megabytes=32).run([wide]) == [Outcome(5 * 10**6)]
    deep = "def f(n): return 0 if n == 0 else 1 + f(n - 1)\n" + solution("return f(100)")
    assert SANDBOX.run([deep]) == [Outcome(100)]
    assert "recursion" in Sandbox(depth=50).run([deep])[0].error
    for bad in ({"seconds": 0}, {"megabytes": 0}, {"depth": 2000}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))}: expected"):
            Sandbox(**bad)


def test_random_numbers_and_dates_do_not_depend_on_the_run():
    draw = "import random\n" + solution("return random.random()")
    a, b = SANDBOX.run([draw, draw])
    assert a == b == SANDBOX.run([draw])[0] and a.error is None
    assert SANDBOX.run(["import datetime\n" + solution("return str(datetime.datetime.now())")])[0].error


def test_without_the_sandbox_nothing_runs(monkeypatch):
    real = builtins.__import__

    def without_monty(name, *rest):
        if name == "pydantic_monty":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_monty)
    for call in (SANDBOX.check, lambda: SANDBOX.run([solution("return 1")])):
        with pytest.raises(UserError, match="programs: expected the sandbox .*; pip install pydantic-monty"):
            call()


def test_without_the_interpreter_nothing_runs(monkeypatch):
    monkeypatch.setenv("MONTY_BIN", "/nowhere/monty")
    with pytest.raises(UserError, match=r"; pip install pydantic-monty \(.*/nowhere/monty"):
        SANDBOX.run([solution("return 1")])
