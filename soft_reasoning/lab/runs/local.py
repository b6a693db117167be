"""The solver of a run with an engine in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.configuration.context import (
    SecondModels,
    build_context,
    build_engine,
    build_method,
    check_fits,
    check_problems,
    check_wording,
)
from soft_reasoning.engine.base import Engine
from soft_reasoning.engine.completions import StoreFile, replaying
from soft_reasoning.lab.runs.manifest import describe_engine, describe_loaded
from soft_reasoning.prompts import Exemplar
from soft_reasoning.schedule.job import Clock
from soft_reasoning.schedule.method import Context, Method
from soft_reasoning.schedule.scheduler import MAX_LIVE, drive
from soft_reasoning.types import Problem, Result


class Local:
    """Solves in this process on the engine of ``context``, ``max_live`` problems at a time."""

    def __init__(self, method: Method, context: Context, max_live: int = MAX_LIVE) -> None:
        self.method, self.context, self.max_live = method, context, max_live
        self.grader: AnswerGrader = context.grader
        self.about: Mapping[str, object] = {
            **describe_engine(context.engine),
            "loaded": describe_loaded(context.engine),
            "layout": context.prompts.layout,
            "independent": bool(getattr(method, "independent", False)),
        }

    def solve(
        self,
        problems: Iterable[Problem],
        clock: Clock,
        completions: StoreFile | None = None,
        watch: Callable[[Sequence[int]], None] | None = None,
    ) -> Iterator[tuple[Problem, Result]]:
        """As ``Solver.solve``."""
        with replaying(completions, self.context.engines):
            yield from drive(
                problems, self.method, self.context, max_live=self.max_live, clock=clock, watch=watch
            )

    def peaks(self) -> Mapping[str, int]:
        return dict(self.context.engine.peak_bytes)


class LocalLauncher:
    """Loads an engine and keeps it until a configuration needs another engine."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._settings: Any = None
        self._models = SecondModels()

    def start(
        self,
        config: Mapping[str, Any],
        problems: Sequence[Problem],
        exemplars: Sequence[Exemplar] = (),
        method: Method | None = None,
    ) -> Local:
        """As ``Launcher.start``."""
        method, settings = method or build_method(config), config["engine"]
        check_wording(config["prompt"], method)
        if self._engine is None or self._settings != settings:
            self._close_engine()
            self._engine, self._settings = build_engine(config), settings
        else:
            self._engine.begin_run()
        self._models.begin_run()
        context = build_context(config, self._engine, exemplars, self._models, method)
        check_fits(method, context)
        check_problems(problems, context)
        return Local(method, context, config["max_live"])

    def close(self) -> None:
        """Release all models."""
        self._close_engine()
        self._models.close()

    def _close_engine(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None
