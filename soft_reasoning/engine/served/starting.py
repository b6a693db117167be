"""Servers that are started here and end with this process: ``vllm`` and llama.cpp's."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from time import monotonic, sleep
from urllib.error import URLError
from urllib.request import urlopen

from soft_reasoning.types import UserError

WATCH = """
import os, subprocess, sys, threading
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
def end():
    os.read(0, 1)
    child.terminate()
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
threading.Thread(target=end, daemon=True).start()
os._exit(child.wait() & 255)
"""
"""Runs a command until standard input closes, as it does when the process that holds the other end dies."""
TELL = 10.0
"""Seconds between two lines of progress."""
LINES = 3
"""Last lines of a dead server that a message shows."""

log: logging.Logger = logging.getLogger(__name__)


class StartedServer:
    """A server in a process of its own.

    Args:
        engine: The engine's name, for messages.
        command: Its command line, with ``{port}`` for the port on which it listens.

    Raises:
        UserError: If it ends before it is ready; its last lines are in the message.
    """

    def __init__(self, engine: str, command: Sequence[str]) -> None:
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}/v1"
        self._engine = engine
        with ExitStack() as opened:
            self._log = opened.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(
                [sys.executable, "-c", WATCH, *(word.replace("{port}", str(port)) for word in command)],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env={"VLLM_NO_USAGE_STATS": "1", **os.environ},
                start_new_session=True,  # Ctrl-C is for the run, which closes it
            )
            opened.enter_context(self._process)  # its end closes standard input, and waits
            self._wait(f"http://127.0.0.1:{port}/health")
            self.close = opened.pop_all().close

    def _wait(self, health: str) -> None:
        begun = told = monotonic()
        while True:
            if self._process.poll() is not None:
                raise UserError(
                    f"engine={self._engine}: expected a server that starts, got one that ended with "
                    f"{self._process.returncode}; its last lines: {' | '.join(self.last_lines())}"
                )
            try:
                with urlopen(health, timeout=5):
                    break
            except (URLError, OSError):
                sleep(0.1)
            if monotonic() - told > TELL:
                told = monotonic()
                last = " ".join(self.last_lines()[-1:])
                log.info("waiting for the server for %.0f s: %s", told - begun, last)
        log.info("the server was ready after %.1f s", monotonic() - begun)

    def last_lines(self) -> list[str]:
        """Return the last lines that it printed."""
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines()]
        return [line[:300] for line in lines if line][-LINES:]


def _free_port() -> int:
    """Return a port of this machine on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
