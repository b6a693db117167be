r"""Formulas, read and compared by Math-Verify in a process of its own.

Symbolic comparison can run forever or exhaust memory, and no timeout inside a process stops it reliably. A
process can be killed, and is replaced.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from loky import ProcessPoolExecutor

from soft_reasoning.answers.marks import SPACES, WINDOW, Reading
from soft_reasoning.answers.text import SENTENCE_END
from soft_reasoning.types import UserError

log: logging.Logger = logging.getLogger(__name__)

_MATHS = re.compile(
    r"\$\$?(?!\d[^$\\{]*\s[A-Za-z]{3})([^$]{1,2000})\$|\\\((.{1,2000}?)\\\)|\\\[(.{1,2000}?)\\\]", re.DOTALL
)
"""A formula; not what stands between two prices: $5 and then $6."""
_OR = re.compile(r"[\s$\\)\]]{0,9}or[\s$\\(\[]{0,9}")
"""Between two formulas that are both meant."""
_UNIT = re.compile(r"\\(?:text|mathrm)\s?\{\s*([^{}]*?)\s*\}")
_BASE = re.compile(r"(?<=\d)_\{?(\d+)")


def read(statement: str, question: str = "", marked: bool = True) -> Reading | None:
    """The first formula of a statement, else its first sentence."""
    if maths := _MATHS.search(statement):
        return _stripped(statement, *maths.span(maths.lastindex or 0))
    end = SENTENCE_END.search(statement)
    return _stripped(statement, 0, end.start() if end else len(statement))


def close(text: str) -> Reading | None:
    """The last formula of a text, unless another one is meant as well."""
    offset = max(0, len(text) - WINDOW)
    found = [maths.span(maths.lastindex or 0) for maths in _MATHS.finditer(text, offset)]
    two = len(found) > 1 and _OR.fullmatch(text, found[-2][1], found[-1][0])
    return _stripped(text, *found[-1]) if found and not two else None


def _stripped(text: str, start: int, end: int) -> Reading | None:
    answer = text[start:end].strip(SPACES + "$")
    start = text.find(answer, start)
    return Reading(answer, start, start + len(answer)) if answer else None


def equal(a: str, b: str) -> bool:
    """Whether two formulas mean the same (symmetric).

    Math-Verify 0.9 takes no notice of units and bases. Formulas that differ in these are not the same here.
    """
    units, bases = ([pattern.findall(formula) for formula in (a, b)] for pattern in (_UNIT, _BASE))
    if all(units) and sorted(units[0]) != sorted(units[1]) or bases[0] != bases[1]:
        return False
    first, second = (f"\\boxed{{{formula}}}" for formula in sorted((a, b)))
    return bool(ask(VERIFIED, first, second) or ask(VERIFIED, second, first))


def _local() -> tuple[Callable[..., Any], ...]:
    """The functions of the process: local ones, which are sent to it, so that it loads only Math-Verify."""

    def start(memory: int) -> None:
        import logging
        import resource
        import signal
        from contextlib import suppress
        from importlib import import_module

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is this process's
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        with suppress(ValueError, OSError):  # as macOS raises, which has no such limit
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        logging.disable()  # Math-Verify warns that it keeps no timeouts
        import_module("math_verify")

    def verified(gold: str, answer: str) -> bool:
        """Whether Math-Verify accepts an answer."""
        from math_verify import parse, verify

        return verify(parse(gold, parsing_timeout=0), parse(answer, parsing_timeout=0), timeout_seconds=None)

    def parsed(text: str) -> str | None:
        """What Math-Verify finds in a text, in a form that parses to the same."""
        from math_verify import parse

        parses = parse(text, parsing_timeout=0)
        if not parses:
            return None
        last = str(parses[-1])
        forms = (last, f"${last}$", f"{last}%", f"${last}\\%$", f"${parses[0]}$")
        return next((form for form in forms if parse(form, parsing_timeout=0)[:1] == parses[:1]), last)

    return start, verified, parsed


START, VERIFIED, PARSED = _local()


class MathVerifyProcess:
    """A process that runs functions on texts; started on first use, and replaced when it dies.

    Args:
        seconds: What one answer may take.
        start_seconds: What loading Math-Verify may take.
        memory: Bytes of address space.
    """

    def __init__(self, seconds: float = 5.0, start_seconds: float = 120.0, memory: int = 4 * 2**30) -> None:
        self.seconds, self.start_seconds, self.memory = seconds, start_seconds, memory
        self.pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def ask(self, function: Callable[..., Any], *texts: str) -> Any:
        """Return the function's result; None, with a warning, where it gives none in time.

        Raises:
            UserError: If the process cannot start: that says nothing about the texts.
        """
        with self._lock:
            if self.pool is None:
                self._start()
            assert self.pool is not None
            try:
                return self.pool.submit(function, *texts).result(self.seconds)
            except BaseException as error:  # of Math-Verify, the end of its process, or Ctrl-C
                self.close()
                if not isinstance(error, Exception):
                    raise
                reason = "too slow" if isinstance(error, TimeoutError) else type(error).__name__
                log.warning("Math-Verify: %s: %s", " and ".join(f"{text!r:.80}" for text in texts), reason)
                return None

    def _start(self) -> None:
        try:
            self.pool = ProcessPoolExecutor(1, initializer=START, initargs=(self.memory,))
            self.pool.submit(int).result(self.start_seconds)
        except BaseException as error:
            self.close()
            if not isinstance(error, Exception):
                raise
            raise UserError(
                f"Math-Verify's process did not start ({type(error).__name__}); free memory, or "
                "use answers of another type"
            ) from error

    def close(self) -> None:
        """End the process, if it runs."""
        pool, self.pool = self.pool, None
        if pool is not None:
            pool.shutdown(kill_workers=True)


ask = lru_cache(maxsize=65536)(MathVerifyProcess().ask)
