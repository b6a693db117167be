"""What a call is solved with: its options become a configuration, a method and a context."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from soft_reasoning.configuration.build import build_context, build_dataset, check_fits, check_problems
from soft_reasoning.configuration.compose import check_prompt
from soft_reasoning.configuration.options import (
    Options,
    applied,
    changed,
    configured,
    configured_method,
    key_of,
    without_parts,
)
from soft_reasoning.engines.abilities import check_abilities
from soft_reasoning.engines.base import Engine
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.job import Job
from soft_reasoning.scheduling.method import Method
from soft_reasoning.types import UserError

MOST_KEPT = 64
"""Combinations of options whose parts are kept."""


@dataclass(frozen=True)
class Parts:
    """What a call is solved with; the options keep a user's own objects alive, whose ids are in the key."""

    options: Options
    config: DictConfig
    method: Method
    context: Context


def check_solvable(jobs: Sequence[Job[Any]]) -> None:
    """Refuse the jobs of a call if one of their problems cannot be solved.

    Raises:
        UserError: In one line.
    """
    for job in jobs[:1]:
        check_abilities(job.method, job.context.engine)
        check_problems([each.problem for each in jobs], job.method, job.context)


class PartsMaker:
    """Makes the parts of calls, and keeps those used last.

    Args:
        base: Overrides of the model, the prompt and the seed.
        overrides: The user's.
        options: The options that a call's replace.
        prompt: A prompt of the user's own; None is the one that ``base`` names.
        answer_type: The type of answers; None is the prompt's.
        settings: Values of the configuration that no override can hold.
        load: Loads the engine of a configuration.
    """

    def __init__(
        self,
        base: Sequence[str],
        overrides: Sequence[str],
        options: Options,
        *,
        prompt: Mapping[str, Any] | None,
        answer_type: str | None,
        settings: Mapping[str, Any],
        load: Callable[[DictConfig], Engine],
    ) -> None:
        self._base, self._overrides, self._prompt = base, overrides, prompt
        self.options, self.answer_type = options, answer_type or ""
        self._kept: OrderedDict[Hashable, Parts] = OrderedDict()  # those used last at the end
        self._making = threading.Lock()
        config = self._config(options)
        for key, value in settings.items():
            OmegaConf.update(config, key, value)
        method = configured_method(options, config)
        self._exemplars = build_dataset(config).exemplars()
        self.engine = load(config)
        context = applied(options, build_context(config, self.engine, self._exemplars))
        self.own = Parts(options, config, method, context)

    def of(self, changes: Mapping[str, Any]) -> Parts:
        """Return the parts of a call with the options ``changes``."""
        if changes.get("method") == self.own.method.name:  # its options and overrides hold
            changes = {name: value for name, value in changes.items() if name != "method"}
        options = changed(self.options, changes)
        key = key_of(options)
        parts = self.own if key == key_of(self.options) else self._made(key, options)
        parts = replace(parts, context=applied(options, parts.context))
        check_fits(parts.config, parts.method, parts.context)
        return parts

    def _made(self, key: Hashable, options: Options) -> Parts:
        with self._making:
            parts = self._kept.pop(key, None)
            if parts is None:
                config = self._config(options)
                method = configured_method(options, config)
                parts = Parts(options, config, method, build_context(config, self.engine, self._exemplars))
            self._kept[key] = parts
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return parts

    def _config(self, options: Options) -> DictConfig:
        own = options.get("method") in (None, self.options.get("method"))
        overrides = self._overrides if own else without_parts(self._overrides)
        config = configured(options, [*self._base, *overrides])
        if self._prompt is not None:
            config.prompt = self._prompt
        if not self.answer_type:
            keys = ("prompt.answer_type", "prompt.default_answer_type")
            types = [str(OmegaConf.select(config, key) or "") for key in keys]
            self.answer_type = types[0] or types[1] or "number"
        check_prompt(config, "answer_type", self.answer_type)
        if config.methods is not None:
            raise UserError("overrides: expected one method, got a comparison; give method=NAME, or compare "
                            "with soft-reasoning compare")  # fmt: skip
        return config
