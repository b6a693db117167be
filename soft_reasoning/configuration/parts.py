"""What a call is solved with: its options become a configuration, a method and a context."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import choice
from soft_reasoning.configuration.build import (
    build_context,
    build_dataset,
    build_method,
    built,
    check_fits,
    check_problems,
)
from soft_reasoning.configuration.compose import (
    PromptLike,
    check_prompt,
    is_bundled,
    is_file_name,
    model_overrides,
    override,
    prompt_for,
    prompt_settings,
)
from soft_reasoning.configuration.options import PARTS, Options, check_overrides, checked, configured, lacking
from soft_reasoning.engines.abilities import check_abilities
from soft_reasoning.engines.base import Engine
from soft_reasoning.rewards.functions import part_of
from soft_reasoning.scheduling.context import Context, Limits
from soft_reasoning.scheduling.job import Job
from soft_reasoning.scheduling.method import Method
from soft_reasoning.types import UserError

MOST_KEPT = 64
"""Combinations of options whose parts are kept."""

OF_METHODS = (
    "method", "preset", "embedding", "search", "surrogate", "acquisition", "candidate_points", "batch",
    "features", "verifier", "reward", "final", "decoding",
)  # fmt: skip
"""Groups whose overrides belong to one method."""


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
    """Makes the parts of calls, and keeps them.

    Args:
        model: The model's name or folder.
        prompt: A shipped prompt's name or one of the user's own; None follows from the model and the type.
        answer_type: The type of answers; None is the prompt's.
        overrides: The user's.
        options: The options that a call's replace.
        settings: Values of the configuration that no override can hold.
        load: Loads the engine of a configuration.
    """

    def __init__(
        self,
        model: str,
        prompt: PromptLike | None,
        answer_type: str | None,
        overrides: Sequence[str],
        options: Options,
        settings: Mapping[str, Any],
        load: Callable[[DictConfig], Engine],
    ) -> None:
        check_overrides(overrides)
        if answer_type is not None:
            choice("answer_type", answer_type, ANSWER_TYPES)
        self._prompt: Mapping[str, Any] | None = None
        if prompt is None:
            prompt = "demo" if is_bundled(model) else prompt_for(answer_type or "open")
        elif not isinstance(prompt, str) or is_file_name(prompt):
            prompt, self._prompt = "any", prompt_settings(prompt)
        self._overrides = [
            *([override("model.path", model)] if is_bundled(model) else model_overrides(model)),
            f"prompt={prompt}", override("seed", options.get("seed", 0)), *overrides,
        ]  # fmt: skip
        self.options, self.answer_type = options, answer_type or ""
        config = self._config(options)
        for key, value in settings.items():
            OmegaConf.update(config, key, value)
        method = method_of(options, config)
        self._exemplars = build_dataset(config).exemplars()
        self.engine = load(config)
        self._kept: dict[Hashable, Parts] = {}
        self.own = self._parts(options, config, method)

    def of(self, changes: Mapping[str, Any]) -> Parts:
        """Return the parts of a call with the options ``changes``.

        With another method, what belongs to the reasoner's is not kept.
        """
        changes, kept = dict(checked(changes, "solve")), dict(self.options)
        if changes.get("method") == self.own.method.name:
            del changes["method"]  # its options and overrides hold
        if changes.get("method", kept.get("method")) != kept.get("method"):
            kept = {name: value for name, value in kept.items() if name in ("max_tokens", "max_seconds")}
        options = cast(Options, {**kept, **changes})
        key = _key(options)
        if key == _key(self.options):
            parts = self.own
        elif (parts := self._kept.get(key)) is None:
            config = self._config(options)
            parts = self._parts(options, config, method_of(options, config))
            if len(self._kept) == MOST_KEPT:
                self._kept.clear()
            self._kept[key] = parts
        limits = Limits(
            options.get("max_tokens") or parts.config.max_tokens,
            options.get("max_seconds") or parts.config.max_seconds,
        )
        prompts = parts.context.prompts.ending(options.get("stop") or ())
        seed = options.get("seed", parts.context.seed)
        context = replace(parts.context, limits=limits, prompts=prompts, seed=seed)
        check_fits(parts.config, parts.method, context)
        return replace(parts, context=context)

    def _parts(self, options: Options, config: DictConfig, method: Method) -> Parts:
        return Parts(options, config, method, build_context(config, self.engine, self._exemplars))

    def _config(self, options: Options) -> DictConfig:
        overrides = self._overrides
        if options.get("method") not in (None, self.options.get("method")):
            groups = [re.split(r"[=./]", word.lstrip("+~"))[0] for word in overrides]
            overrides = [w for w, group in zip(overrides, groups, strict=True) if group not in OF_METHODS]
        config = configured(options, overrides)
        if self._prompt is not None:
            config.prompt = self._prompt
        if not self.answer_type:
            prompt = config.prompt
            self.answer_type = prompt.answer_type or prompt.get("default_answer_type") or "number"
        check_prompt(config, "answer_type", self.answer_type)
        if config.methods is not None:
            raise UserError("overrides: expected one method, got a comparison; give method=NAME, or compare "
                            "with soft-reasoning compare")  # fmt: skip
        return config


def _key(options: Options) -> Hashable:
    """What a method and its prompts depend on; objects of the user's need not be hashable."""
    apart = ("max_tokens", "max_seconds", "stop", "seed")
    values = {name: value for name, value in options.items() if name not in apart}
    plain = (str, int, float)
    return tuple(sorted((name, v if isinstance(v, plain) else id(v)) for name, v in values.items()))


def method_of(options: Options, config: DictConfig) -> Method:
    """Return the method that ``config`` names with the user's parts in it, or the user's object.

    Raises:
        UserError: For a part that the method does not have, or one that is neither function nor object.
    """
    method = options.get("method")
    if not isinstance(method, str | None):
        return method
    method = build_method(config)
    known = [field.name for field in fields(method)] if is_dataclass(method) else []
    parts: dict[str, Any] = {}
    for name in PARTS:
        part = options.get(name)
        field = "optimiser" if name == "acquisition" else name
        if isinstance(part, str | None):
            continue
        if field not in known:
            raise lacking(name, method.name)
        if name != "acquisition":
            parts[field] = part_of(name, part, *([config.search.rounds] if name == "stopping" else []))
        elif callable(part):
            parts[field] = built(config, "search.optimiser", acquisition=part)
        else:
            raise UserError("acquisition: expected a class of acquisition functions, such as BoTorch's, or "
                            f"a function that makes one of a model, got {part!r:.80}")  # fmt: skip
    return replace(cast(Any, method), **parts) if parts else method
