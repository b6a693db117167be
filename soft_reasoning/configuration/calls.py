"""The parts of a call from Python: the configuration, method and context that its options ask for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import choice
from soft_reasoning.configuration.build import (
    SecondModels,
    build_context,
    build_dataset,
    build_method,
    check_fits,
    check_problems,
    check_wording,
    writes_programs,
)
from soft_reasoning.configuration.compose import check_prompt, prompt_for
from soft_reasoning.configuration.errors import lacking
from soft_reasoning.configuration.implied import (
    METHOD_GROUPS,
    full_names,
    is_bundled,
    is_file_name,
    model_overrides,
)
from soft_reasoning.configuration.options import (
    OF_EVERY_METHOD,
    PARTS,
    PER_CALL,
    Options,
    check_overrides,
    checked,
    configured,
)
from soft_reasoning.configuration.overrides import Override
from soft_reasoning.configuration.own_prompt import PromptLike, prompt_settings
from soft_reasoning.configuration.parts import built
from soft_reasoning.engines.base import Engine
from soft_reasoning.rewards.functions import as_verifier
from soft_reasoning.scheduling.context import Context, Limits
from soft_reasoning.scheduling.job import Job
from soft_reasoning.scheduling.method import Method
from soft_reasoning.types import UserError

OBJECTS = {
    "reward": ("coherence_of", "rewards.combine.Reward()"),
    "final": ("choose", "rewards.final.FinalAnswer()"),
    "stopping": ("reason", "search.stopping.Stopping()"),
}
"""For parts that are objects: a method of theirs, and an example in errors."""

MOST_CACHED = 64
"""Number of combinations of options whose parts are cached."""


@dataclass(frozen=True)
class Parts:
    """The parts of a call; ``options`` keeps the user's objects alive, whose ids are in the cache's key."""

    options: Options
    config: DictConfig
    method: Method
    context: Context


def check_solvable(jobs: Sequence[Job[Any]]) -> None:
    """Reject the jobs of a call if one of their problems cannot be solved.

    Raises:
        UserError: In one line.
    """
    for job in jobs[:1]:
        check_problems([job.problem for job in jobs], job.context)


class CallBuilder:
    """Builds the parts of calls, and caches them.

    Args:
        model: The model's name in conf/model or on the hub, or its folder.
        prompt: A shipped prompt's name or a custom prompt; None chooses by the model and ``answer_type``.
        answer_type: The type of answers; None uses the prompt's.
        overrides: The user's overrides.
        options: The default options, which those of a call replace.
        settings: Configuration values that no override can hold.
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
        typed, method = check_overrides(overrides), options.get("method")
        if answer_type is not None:
            choice("answer_type", answer_type, ANSWER_TYPES)
        self._prompt: Mapping[str, Any] | None = None
        of_any_kind = prompt is None and answer_type is None and not is_bundled(model)
        if prompt is None:
            prompt = "demo" if is_bundled(model) else prompt_for(answer_type or "open")
        elif not isinstance(prompt, str) or is_file_name(prompt):
            prompt, self._prompt = "any", prompt_settings(prompt)
        free = prompt == "any" and self._prompt is None and answer_type in (None, "open")
        asked = [Override("prompt", str(prompt)), *([Override("prompt.answer_type", "open")] if free else [])]
        chosen = [
            *([Override.of("model.path", model)] if is_bundled(model) else model_overrides(model)),
            Override.of("seed", options.get("seed", 0)),
            *full_names(typed, context=[Override("method", method)] if isinstance(method, str) else ()),
        ]
        self._overrides = [*asked, *chosen]
        self.options = options
        self._settings = dict(settings)
        self.answer_type: str = answer_type or ""
        config = self._config(options)
        method = _build_method(options, config)
        if of_any_kind and writes_programs(method):  # which compute numbers
            self._overrides, self.answer_type = [Override("prompt", prompt_for("number")), *chosen], ""
            config = self._config(options)
            method = _build_method(options, config)
        check_wording(config, method)
        self._exemplars = build_dataset(config).exemplars()
        self._lock = threading.Lock()
        self._cache: dict[Hashable, Parts] = {}  # the least recently used first
        self._models = SecondModels()
        self.engine = load(config)
        try:
            self.default = self._parts(options, config, method)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free all models."""
        self.engine.close()
        self._models.close()

    def make(self, changes: Mapping[str, Any]) -> Parts:
        """Return the parts of a call with the options ``changes``.

        With another method, options and overrides of the default method are dropped, but for those that
        every method has.
        """
        changes, defaults = dict(checked(changes, "solve")), dict(self.options)
        if changes.get("method") == self.default.method.name:
            del changes["method"]  # its options and overrides stay
        if changes.get("method", defaults.get("method")) != defaults.get("method"):
            kept = [
                name for name in OF_EVERY_METHOD if isinstance(changes["method"], str) or name in PER_CALL
            ]
            defaults = {key: value for key, value in defaults.items() if key in kept}
        options = cast(Options, {**defaults, **changes})
        key = _key(options)
        if key == _key(self.options):
            parts = self.default
        elif (parts := self._cached(key)) is None:
            config = self._config(options)
            method = _build_method(options, config)
            check_wording(config, method)
            parts = self._parts(options, config, method)
            self._keep(key, parts)
        limits = Limits(
            options.get("max_tokens") or parts.config.max_tokens,
            options.get("max_seconds") or parts.config.max_seconds,
        )
        prompts = parts.context.prompts.ending(options.get("stop") or ())
        seed = options.get("seed", parts.context.seed)
        judges = {name: replace(judge, seed=seed) for name, judge in parts.context.judges.items()}
        context = replace(parts.context, limits=limits, prompts=prompts, seed=seed, judges=judges)
        check_fits(parts.method, context)
        return replace(parts, context=context)

    def _cached(self, key: Hashable) -> Parts | None:
        with self._lock:
            if (parts := self._cache.pop(key, None)) is not None:
                self._cache[key] = parts
            return parts

    def _keep(self, key: Hashable, parts: Parts) -> None:
        with self._lock:
            self._cache[key] = parts
            while len(self._cache) > MOST_CACHED:
                del self._cache[next(iter(self._cache))]

    def _parts(self, options: Options, config: DictConfig, method: Method) -> Parts:
        context = build_context(config, self.engine, self._exemplars, self._models)
        return Parts(options, config, method, context)

    def _config(self, options: Options) -> DictConfig:
        overrides = self._overrides
        if options.get("method") not in (None, self.options.get("method")):
            overrides = [override for override in overrides if override.root not in METHOD_GROUPS]
        config = configured(options, overrides)
        for key, value in self._settings.items():
            OmegaConf.update(config, key, value)
        if self._prompt is not None:
            config.prompt = self._prompt
        if not self.answer_type:
            keys = ("prompt.answer_type", "prompt.default_answer_type")
            types = [str(OmegaConf.select(config, key) or "") for key in keys]
            self.answer_type = types[0] or types[1] or "number"
        check_prompt(config, "answer_type", self.answer_type)
        if config.methods is not None:
            raise UserError(
                "overrides: expected one method, got a comparison; use method=NAME, or compare "
                "with soft-reasoning compare"
            )
        return config


def _key(options: Options) -> Hashable:
    """The options that a method and its prompts depend on; a user's objects need not be hashable."""
    values = {name: value for name, value in options.items() if name not in PER_CALL}
    plain = (str, int, float)
    return tuple(
        (name, type(v).__name__, v if isinstance(v, plain) else id(v)) for name, v in sorted(values.items())
    )


def _build_method(options: Options, config: DictConfig) -> Method:
    """Return the method that ``config`` names with the user's parts, or the user's method object.

    Raises:
        UserError: For a part that the method does not have, or an object of another kind.
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
        if name == "verifier":
            parts[field] = as_verifier(part)
        elif name in OBJECTS:
            parts[field] = _checked(name, part)
        elif callable(part):
            parts[field] = built(config, "search.optimiser", acquisition=part)
        else:
            raise UserError(
                "acquisition: expected a class of acquisition functions, such as BoTorch's, or "
                f"a function of a model that returns one, got {part!r:.80}"
            )
    return replace(cast(Any, method), **parts) if parts else method


def _checked(name: str, part: Any) -> Any:
    attribute, like = OBJECTS[name]
    if isinstance(part, type) or not callable(getattr(part, attribute, None)):
        raise UserError(
            f"{name}: expected a name, or an object with {attribute} like {like}, got {part!r:.80}"
        )
    return part
