"""Math-Verify in a worker process with a hard timeout.

Symbolic comparison can run forever or exhaust memory, and no timeout inside a process stops it reliably. A
process can be killed. A worker that dies is replaced and asked once more. One that runs out of time is
replaced, and its comparison counts as "not equal". The ``math`` extra installs math-verify.
"""

from __future__ import annotations

import atexit
import importlib.util
import io
import json
import logging
import re
import select
import subprocess
import sys
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import IO

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
                    self._stop()
                    logger.warning("%s took over %g s", about, self.timeout)
                    return None
                except (BrokenPipeError, EOFError):
                    self._stop()
            logger.warning("%s ended its worker twice", about)
            return None

    def close(self) -> None:
        with self._lock:
            self._stop()

    def _ask(self, question: dict[str, str]) -> bytes:
        if self._process is None or self._process.poll() is not None:
            self._start()
        stdin, _ = self._pipes()
        stdin.write(json.dumps(question).encode() + b"\n")
        stdin.flush()
        return self._line(self.timeout)

    def _start(self) -> None:
        self._stop()
        # -P: no module of this folder may shadow a library.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(self.script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._line(self.start_timeout)

    def _line(self, timeout: float) -> bytes:
        """The worker's next line; TimeoutError when late, EOFError when it has died."""
        _, stream = self._pipes()
        line, deadline = b"", time.monotonic() + timeout
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                raise TimeoutError
            piece = stream.read1(4096)
            if not piece:
                raise EOFError
            line += piece
        return line.strip()

    def _pipes(self) -> tuple[IO[bytes], io.BufferedReader]:
        """Standard input and output of the running worker."""
        assert self._process is not None and self._process.stdin is not None
        assert isinstance(self._process.stdout, io.BufferedReader)
        return self._process.stdin, self._process.stdout

    def _stop(self) -> None:
        if self._process is None:
            return
        stdin, stdout = self._pipes()
        self._process.kill()
        self._process.wait()
        stdout.close()
        try:
            stdin.close()
        except BrokenPipeError:
            pass  # a question was still in the buffer of a pipe whose reader is gone
        self._process = None


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
