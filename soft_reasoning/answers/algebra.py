"""Math-Verify in a worker process with a hard timeout.

Symbolic comparison can run forever or exhaust memory, and no timeout inside a process stops it reliably. A
process can be killed. A worker that dies is replaced and asked once more. One that runs out of time is
replaced, and its comparison counts as "not equal". The ``math`` extra installs math-verify.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import logging
import re
import subprocess
import sys
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from soft_reasoning.types import UserError

logger: logging.Logger = logging.getLogger(__name__)

WORKER = Path(__file__).with_name("latex_worker.py")


class Worker:
    """One worker process, started on first use and replaced when it dies.

    Several threads may share it; their questions are answered one after the other.

    Args:
        script: A program that speaks the protocol of ``latex_worker``.
        timeout: Seconds that one comparison may take.
        start_timeout: Seconds that loading math-verify may take.
    """

    def __init__(self, script: Path = WORKER, *, timeout: float = 5.0, start_timeout: float = 120.0) -> None:
        self.script = script
        self.timeout = timeout
        self.start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def equivalent(self, a: str, b: str) -> bool:
        """Whether ``a`` and ``b`` mean the same; False where that cannot be decided in time."""
        return self.ask("comparing", a=a, b=b) == b"1"

    def ask(self, what: str, **question: str) -> bytes | None:
        """Return the worker's answer, or None with a warning if there is none in time."""
        about = f"{what} {' with '.join(f'{text!r:.80}' for text in question.values())}"
        with self._lock:
            for _ in range(2):
                try:
                    return self._ask(question)
                except TimeoutError:
                    logger.warning("%s took over %g s", about, self.timeout)
                    return None
                except (BrokenPipeError, EOFError):
                    self.close()
            logger.warning("%s ended its worker twice", about)
            return None

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError):  # a question may be in the buffer of a pipe whose reader is gone
                process.communicate()

    def _ask(self, question: dict[str, str]) -> bytes:
        process = self._process
        if process is None or process.poll() is not None:
            # -P: no module of this folder may shadow a library.
            command = [sys.executable, "-P", str(self.script)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._process = process
            self._line(process, self.start_timeout)
        assert process.stdin is not None
        process.stdin.write(json.dumps(question).encode() + b"\n")
        process.stdin.flush()
        return self._line(process, self.timeout)

    def _line(self, process: subprocess.Popen[bytes], timeout: float) -> bytes:
        """The worker's next line; TimeoutError when late, which ends it, and EOFError when it has died."""
        assert process.stdout is not None
        late = threading.Event()
        clock = threading.Timer(timeout, lambda: (late.set(), process.kill()))
        clock.start()
        line = process.stdout.readline()
        clock.cancel()
        if line.endswith(b"\n"):
            return line.strip()
        self.close()
        raise TimeoutError if late.is_set() else EOFError


_shared = Worker()
atexit.register(_shared.close)


def _worker(need: str) -> Worker:
    if importlib.util.find_spec("math_verify") is None:
        raise UserError(
            f"{need} needs math-verify, which is not installed: pip install 'soft-reasoning[math]', "
            "or choose another type of answer (dataset.answer_type=text) or grader=default"
        )
    return _shared


@lru_cache(maxsize=65536)
def _equivalent(a: str, b: str) -> bool:
    return _worker("a LaTeX answer").equivalent(a, b)


@lru_cache(maxsize=65536)
def parsed(text: str) -> str | None:
    """Return a text that Math-Verify parses to what it finds in ``text``, or None if it finds nothing."""
    line = _worker("grader=math_verify").ask("parsing", read=text)
    return None if line is None else json.loads(line)


@lru_cache(maxsize=65536)
def verified(gold: str, answer: str) -> bool:
    """``math_verify.verify(parse(gold), parse(answer))``; False where that cannot be decided in time."""
    return _worker("grader=math_verify").ask("verifying", gold=gold, answer=answer) == b"1"


def equivalent(a: str, b: str) -> bool:
    """Whether two LaTeX answers mean the same (symmetric); see :class:`Worker`."""
    a, b = _bare(a), _bare(b)
    return a == b or _equivalent(*sorted((a, b)))


_SPACE = re.compile(r"(\\[A-Za-z]+)\s+(?=[A-Za-z])|(?<!\d)\s+|\s+(?!\d)")


def _bare(text: str) -> str:
    """Without the spacing and sizing that carry no meaning."""
    for command in ("\\left", "\\right", "\\,", "\\!", "\\;", "$"):
        text = text.replace(command, "")
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").strip()
    return _SPACE.sub(lambda space: f"{space[1]} " if space[1] else "", text).rstrip(".")
