"""One engine in this process: a run's solver, and the memory in use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.configuration.build import (
    build_context,
    build_engine,
    build_method,
    check_lengths,
    check_prior,
    check_unseen,
    check_wording,
    engine_settings,
)
from soft_reasoning.engines.abilities import TellsMemory
from soft_reasoning.engines.base import Engine
from soft_reasoning.runs.manifest import describe_engine
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Method
from soft_reasoning.scheduling.scheduler import MAX_LIVE, Clock, drive
from soft_reasoning.types import Problem, Result

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


class Local:
    """Solves in this process on the engine of ``context``, ``max_live`` problems at a time."""

    def __init__(self, method: Method, context: Context, max_live: int = MAX_LIVE) -> None:
        self.method, self.context, self.max_live = method, context, max_live
        self._sampler = MemorySampler(context.engine)

    @property
    def about(self) -> Mapping[str, Any]:
        independent = bool(getattr(self.method, "independent", False))
        layout = self.context.prompts.layout
        return {**describe_engine(self.context.engine), "layout": layout, "independent": independent}

    @property
    def grader(self) -> AnswerGrader:
        return self.context.grader

    def solve(
        self,
        problems: Iterable[Problem],
        *,
        clock: Clock,
        on_tick: Callable[[Clock], None] | None = None,
    ) -> Iterator[tuple[Problem, Result]]:
        with self._sampler:
            yield from drive(
                problems, self.method, self.context, max_live=self.max_live, clock=clock, on_tick=on_tick
            )

    def peaks(self) -> Mapping[str, int]:
        engine = self.context.engine
        return dict(engine.peak_bytes) if isinstance(engine, TellsMemory) else {}

    def memory_samples(self) -> Mapping[str, Sequence[int]]:
        return self._sampler.take()


class LocalLauncher:
    """Loads an engine and keeps it until a configuration needs another."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._settings: Any = None

    def start(self, config: DictConfig, problems: Sequence[Problem], exemplars: Sequence[Any] = ()) -> Local:
        """As ``Launcher.start``."""
        method, settings = build_method(config), engine_settings(config)
        if self._engine is None or self._settings != settings:
            self.close()
            self._engine, self._settings = build_engine(config), settings
        else:
            self._engine.begin_run()
        context = build_context(config, self._engine, exemplars)
        check_wording(method, context)
        check_lengths(list(problems), context)
        check_prior(config, method, context)
        check_unseen(problems, method)
        return Local(method, context, config.max_live)

    def close(self) -> None:
        """Release the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
