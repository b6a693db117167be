"""Math-Verify in a worker process with a hard timeout.

Symbolic comparison can run forever or exhaust memory, and no timeout inside a process stops it reliably;
Math-Verify's timeout needs the main thread. A process can be killed. A worker that dies is replaced and asked
once more. After a timeout the worker is replaced and the comparison counts as "not equal". The ``math`` extra
installs math-verify.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import multiprocessing
import re
import subprocess
import sys
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from soft_reasoning.types import UserError

logger: logging.Logger = logging.getLogger(__name__)

WORKER = Path(__file__).with_name("latex_worker.py")


class Worker:
    """A worker process, started on first use and replaced when it dies.

    Several threads may share it; their calls are answered one after the other.

    Args:
        script: A program that answers as ``latex_worker`` does.
        timeout: Seconds that one answer may take.
        start_timeout: Seconds that loading math-verify may take.
    """

    def __init__(self, script: Path = WORKER, *, timeout: float = 5.0, start_timeout: float = 120.0) -> None:
        self.script = script
        self.timeout = timeout
        self.start_timeout = start_timeout
        self.process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, function: str, *texts: str) -> Any:
        """Return the result of a function of the worker, or None with a warning if it gives none in time."""
        call = f"{function} of {' and '.join(f'{text!r:.80}' for text in texts)}"
        with self._lock:
            for _ in range(2):
                try:
                    if self.process is None:
                        self._start()
                    self._connection.send((function, texts))
                    return self._receive(self.timeout)
                except TimeoutError:
                    logger.warning("%s took over %g s", call, self.timeout)
                    self.close()
                    return None
                except (EOFError, OSError):
                    self.close()
                except BaseException:  # Ctrl-C: the next call would receive this call's answer
                    self.close()
                    raise
            logger.warning("%s ended its worker twice", call)
            return None

    def close(self) -> None:
        """End the process, if it runs."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            self._connection.close()

    def _start(self) -> None:
        self._connection, child_end = multiprocessing.Pipe()
        with child_end:
            # -P: no module of this folder may shadow a library.
            command = [sys.executable, "-P", str(self.script), str(child_end.fileno())]
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, pass_fds=[child_end.fileno()])
        self._receive(self.start_timeout)

    def _receive(self, timeout: float) -> Any:
        if not self._connection.poll(timeout):
            raise TimeoutError
        return self._connection.recv()


_shared = Worker()
atexit.register(_shared.close)


@lru_cache(maxsize=65536)
def ask(need: str, function: str, *texts: str) -> Any:
    """Return the result of a function of ``latex_worker`` for ``texts``; None where it takes too long.

    Raises:
        UserError: without math-verify; ``need`` names the option that needs it.
    """
    if importlib.util.find_spec("math_verify") is None:
        raise UserError(
            f"{need} needs math-verify, which is not installed: pip install 'soft-reasoning[math]', "
            "or choose another type of answer (dataset.answer_type=text) or grader=default"
        )
    return _shared.ask(function, *texts)


def equivalent(a: str, b: str) -> bool:
    """Whether two LaTeX answers mean the same (symmetric); see :class:`Worker`."""
    a, b = _bare(a), _bare(b)
    return a == b or bool(ask("a LaTeX answer", "same", *sorted((a, b))))


_SPACE = re.compile(r"(\\[A-Za-z]+)\s+(?=[A-Za-z])|(?<!\d)\s+|\s+(?!\d)")


def _bare(text: str) -> str:
    """``text`` without spacing and sizing that carry no meaning."""
    for command in ("\\left", "\\right", "\\,", "\\!", "\\;", "$"):
        text = text.replace(command, "")
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").strip()
    return _SPACE.sub(lambda space: f"{space[1]} " if space[1] else "", text).rstrip(".")
