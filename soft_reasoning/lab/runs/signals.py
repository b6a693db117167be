"""Signals that end a command: noted when they arrive, answered between two steps.

An exception that is raised wherever Python is can vanish or become another one in the code of libraries. So a
handler only notes its signal. :func:`check_signals` raises :class:`Ended`, and is called where that is safe.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = tuple(name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_noted: list[int] = []


class Ended(KeyboardInterrupt):
    """One of ``SIGNALS`` arrived; ``code`` is its conventional exit status."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code: int = 128 + number


def handle_signals(handler: Callable[[int, FrameType | None], Any]) -> Mapping[int, Any]:
    """Have ``handler`` called for ``SIGNALS``, and return the handlers that it replaces.

    A signal that is ignored, as under nohup, stays ignored. Only the main thread may set handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    heard = [
        number for name in SIGNALS if signal.getsignal(number := getattr(signal, name)) != signal.SIG_IGN
    ]
    return {number: signal.signal(number, handler) for number in heard}


def _note(number: int, frame: FrameType | None) -> None:
    """Note a signal; another one ends the process at once."""
    _noted.append(number)
    for name in SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def check_signals() -> None:
    """Raise :class:`Ended` if a signal has arrived. Call it between two steps."""
    if _noted:
        raise Ended(_noted[0])


@contextmanager
def noting_signals() -> Generator[None]:
    """Note signals while the context is open; its end raises :class:`Ended` if one has arrived.

    :class:`Ended` replaces an error, which may be what the signal did to another process.
    """
    before = handle_signals(_note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if _noted else handler)
        if _noted:
            number = _noted[0]
            _noted.clear()
            raise Ended(number)
