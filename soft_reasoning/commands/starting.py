"""How a command starts, before its imports, and how Ctrl-C, SIGTERM and SIGHUP end it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # the last is not known everywhere
STARTED_AS = "soft_reasoning."
SCRIPT = "soft-reasoning"


class Ended(KeyboardInterrupt):
    """One of ``NAMES`` arrived; ``code`` is the exit status that convention gives it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code: int = 128 + number


def start() -> None:
    """Begin a command of this package, before its imports, which take seconds.

    Ctrl-C ends the command at once; an exception during imports would be a traceback, or an abort in compiled
    code.
    """
    module = sys.argv[:1] == ["-m"] and any(STARTED_AS in word for word in sys.orig_argv)
    if not module and Path(sys.argv[0]).name != SCRIPT:
        return
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a shell's background
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def ending() -> Iterator[None]:
    """Raise :class:`Ended` inside for the first of ``NAMES``; another one ends the process at once.

    Signals that are ignored, as under nohup, stay so.
    """
    numbers = [int(getattr(signal, name)) for name in NAMES if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    caught = [number for number in numbers if before[number] is not signal.SIG_IGN]
    if threading.current_thread() is not threading.main_thread():
        caught = []  # no other thread may

    def end(number: int, frame: FrameType | None) -> NoReturn:
        for one in caught:
            signal.signal(one, signal.SIG_DFL)
        raise Ended(number)

    for number in caught:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, before[number] or signal.SIG_DFL)
