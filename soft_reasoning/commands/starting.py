"""How a command starts, before its imports, and how Ctrl-C, SIGTERM and SIGHUP end it."""

from __future__ import annotations

import os
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


def reproducible_products() -> None:
    """Set ``MKL_CBWR``, which MKL reads at its first product, unless the user has set it.

    With it a row's product does not depend on the number of rows and threads, where MKL can promise that.
    """
    try:
        with open("/proc/cpuinfo", "rb") as file:
            flags = file.read(8192)
    except OSError:  # another system
        flags = b""
    wide = all(name in flags for name in (b" avx512f", b" avx512bw", b" avx512dq", b" avx512vl"))
    os.environ.setdefault("MKL_CBWR", "AVX512,STRICT" if wide else "AVX2,STRICT")


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
        for other in caught:
            signal.signal(other, signal.SIG_DFL)
        raise Ended(number)

    for number in caught:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, before[number] or signal.SIG_DFL)
