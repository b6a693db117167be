"""Runs programs in Monty, a Python interpreter in a separate process (``pydantic-monty``).

A program reaches no file, network, process or module of the computer: the interpreter has none. Limits end
what takes too long or too much memory, and a process that dies is replaced. Without Monty nothing runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from soft_reasoning.checks import real, whole
from soft_reasoning.types import UserError

MISSING = "programs: expected the sandbox pydantic-monty with its interpreter; pip install pydantic-monty"
MOST_OUTPUT = 10_000
"""Maximum number of bytes that a program may print."""
MOST_CALLS = 50
"""Maximum number of questions to the host, such as the value of an unknown name; the answer is an error."""
GRACE = 0.5
"""Seconds after the time limit at which an interpreter that did not stop by itself is killed."""


@dataclass(frozen=True)
class Outcome:
    """A program's outcome: a value, or else a one-line error."""

    value: object = None
    error: str | None = None


@dataclass(frozen=True)
class Sandbox:
    r"""Where programs run, one after the other, each in a fresh interpreter.

    Args:
        seconds: Time limit per program.
        megabytes: Memory limit per program, in MiB.
        depth: Maximum depth of nested function calls.

    Raises:
        OptionError: For a value out of its range.

    Example:
        >>> Sandbox().run(["def solution():\n    return 6 * 7"])
        [Outcome(value=42, error=None)]
    """

    seconds: float = 1.0
    megabytes: int = 32
    depth: int = 200

    def __post_init__(self) -> None:
        real("seconds", self.seconds, above=0.0, most=600.0)
        whole("megabytes", self.megabytes, least=1, most=4096)
        whole("depth", self.depth, least=1, most=1000)

    def check(self) -> None:
        """Raise a UserError if Monty is not installed."""
        _monty()

    def run(self, programs: Sequence[str]) -> list[Outcome]:
        """Run each program and return the value of its function ``solution()``.

        Raises:
            UserError: If Monty is not installed.
        """
        if not programs:
            return []
        monty = _monty()
        with ExitStack() as stack:
            try:
                pool = stack.enter_context(monty.Monty(max_processes=1, feed_duration_limit_grace=GRACE))
            except (OSError, RuntimeError) as error:  # no interpreter, or one that does not start
                raise UserError(f"{MISSING} ({error})") from error
            return [self._run(program, pool, monty) for program in programs]

    def _run(self, program: str, pool: Any, monty: Any) -> Outcome:
        limits = {
            "max_feed_duration_secs": self.seconds,
            "max_memory": self.megabytes * 2**20,
            "max_recursion_depth": self.depth,
            "max_suspensions": MOST_CALLS,
            "max_total_sleep_secs": 0.0,
        }
        policy = {"sleep": "zero", "random_start": {"seed": 0}, "datetime": "call_host"}
        printed = monty.CollectString(max_bytes=MOST_OUTPUT)
        try:
            with pool.checkout(limits=limits, os_policy=policy) as session:
                return Outcome(session.feed_run(f"{program}\n\nsolution()", print_callback=printed))
        except monty.MontyError as error:
            return Outcome(error=" ".join(_words(error).split())[:200] or type(error).__name__)


def _words(error: Any) -> str:
    """The type and message of an error, without its traceback."""
    return error.display("type-msg") if hasattr(error, "traceback") else str(error)


def _monty() -> Any:
    try:
        import pydantic_monty
    except ImportError as error:
        raise UserError(MISSING) from error
    return pydantic_monty
