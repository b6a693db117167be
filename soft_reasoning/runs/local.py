"""One engine, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

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
from soft_reasoning.engines.base import Engine
from soft_reasoning.runs.runner import Local
from soft_reasoning.types import Problem


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
