"""Average memory of a run, sampled once a second (paper, Appendix "Computational Efficiency")."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from soft_reasoning.engines.abilities import TellsMemory

SECONDS = 1.0
"""Between two samples, as in the paper."""


class MemorySampler:
    """Samples ``engine.used_bytes`` in a thread while the context is open.

    It does nothing for an engine that is not a ``TellsMemory``.
    """

    def __init__(self, engine: Any, seconds: float = SECONDS) -> None:
        self._engine, self._seconds = engine, seconds
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._totals: dict[str, list[int]] = {}
        self._thread: threading.Thread | None = None

    def __enter__(self) -> MemorySampler:
        if isinstance(self._engine, TellsMemory):
            self._stop.clear()
            self._thread = threading.Thread(target=self._sample, daemon=True, name="memory")
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def take(self) -> Mapping[str, list[int]]:
        """Return [sum of bytes, number of samples] by kind since the last call."""
        with self._lock:
            totals, self._totals = self._totals, {}
        return totals

    def _sample(self) -> None:
        while not self._stop.wait(self._seconds):
            used = dict(self._engine.used_bytes)
            with self._lock:
                for kind, size in used.items():
                    total = self._totals.setdefault(kind, [0, 0])
                    total[0] += size
                    total[1] += 1
