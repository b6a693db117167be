"""What a reasoner's calls are solved with: the method and the context for the options of a call."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import cast

from omegaconf import DictConfig, OmegaConf

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import choice
from soft_reasoning.configuration.build import (
    SecondModels,
    build_context,
    build_method,
    built,
    check_fits,
    check_wording,
    writes_programs,
)
from soft_reasoning.configuration.choices import PARTS, SHORT
from soft_reasoning.configuration.compose import (
    PromptLike,
    choices,
    compose_config,
    fit_prompt,
    is_file_name,
    prompt_for,
    prompt_settings,
    quoted,
    typed_keys,
)
from soft_reasoning.configuration.errors import NoSuchOption
from soft_reasoning.configuration.options import (
    FOR_ANY,
    OF_A_SEARCH,
    Options,
    check_overrides,
    checked,
    named,
    replaced,
)
from soft_reasoning.engine.base import Engine
from soft_reasoning.engine.paths import is_bundled
from soft_reasoning.prompts import Exemplar
from soft_reasoning.schedule.method import Context, Limits, Method
from soft_reasoning.types import UserError


class Setup:
    """The configuration of a reasoner, and those of calls that name other choices, each composed once.

    Args:
        model: The model's name in conf/model or on the hub, or its folder.
        prompt: A shipped prompt's name or a custom prompt; None chooses by the model and ``answer_type``.
        answer_type: The type of answers; None uses the prompt's.
        overrides: The user's words of the configuration.
        cache: The folder of a store of completions; None is that of the configuration.
        options: The default options, which those of a call replace.
        settings: Configuration values that no word can hold.

    Attributes:
        config: The configuration under the default options.
        answer_type: The type of answers.
        engine: The loaded engine, which its owner sets.
        models: Further models, such as judges.

    Raises:
        UserError: In one line.
    """

    engine: Engine

    def __init__(
        self,
        model: str,
        prompt: PromptLike | None,
        answer_type: str | None,
        overrides: Sequence[str],
        cache: str | PathLike[str] | None,
        options: Options,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        if answer_type is not None:
            choice("answer_type", answer_type, ANSWER_TYPES)
        overrides, bundled = check_overrides(overrides), is_bundled(model)
        self.model, self._type, self._options = model, answer_type, options
        self._settings: Mapping[str, object] = settings or {}
        self._wording: Mapping[str, object] | None = None
        self._composed: dict[tuple[str, ...], tuple[DictConfig, Method]] = {}
        self._composing = threading.Lock()
        self.models = SecondModels()
        words = [*_model_words(model), f"seed={options.get('seed', 0)}", *overrides]
        if cache is not None:
            words.append(f"cache={quoted(fspath(cache))}")
        if prompt is None:
            chosen = [] if bundled else [f"prompt={prompt_for(answer_type or 'open')}"]
        elif isinstance(prompt, str) and not is_file_name(prompt):
            chosen = [f"prompt={prompt}"]
        else:
            chosen, self._wording = ["prompt=file"], prompt_settings(prompt)
        if chosen == ["prompt=any"] and answer_type in (None, "open"):
            chosen.append("prompt.answer_type=open")
        self._words = [*chosen, *words]
        self.config, method = self._method(options)
        if prompt is None and answer_type is None and not bundled and writes_programs(method):
            self._words = [f"prompt={prompt_for('number')}", *words]  # programs compute numbers
            self._composed.clear()
            self.config, method = self._method(options)
        check_wording(self.config, method)
        self.answer_type: str = self._type or _prompted(self.config)
        shown = self.config.dataset.get("shots")
        self._exemplars: Sequence[Exemplar] = built(self.config, "dataset").exemplars() if shown else ()

    def solving(self, changes: Options, words: Sequence[str] = ()) -> tuple[Method, Context]:
        """Return the method and the context of a call with the options ``changes``.

        ``words`` are further options of the configuration.

        With another method, the options that belong to the default method are dropped.

        Raises:
            UserError: In one line, for options that do not exist or do not fit.
        """
        changes, defaults, kept = checked(changes, "solve"), self._options, self._words
        own = defaults.get("method") or self.config.method.get("name")
        if changes.get("method") not in (None, own):
            defaults = {key: value for key, value in defaults.items() if key in FOR_ANY}
            kept = [word for word in kept if not _is_of_a_method(word)]
        options = cast(Options, {**defaults, **changes})
        config, method = self._method(options, words, kept)
        check_wording(config, method)
        context = build_context(config, self.engine, self._exemplars, self.models, method)
        limits = Limits(
            options.get("max_tokens") or config.max_tokens, options.get("max_seconds") or config.max_seconds
        )
        seed, ending = options.get("seed", context.seed), options.get("stop") or ()
        prompts = context.prompts.ending(ending, options.get("max_new_tokens"))
        context = replace(context, limits=limits, prompts=prompts, seed=seed)
        check_fits(config, method, context)
        return method, context

    def _method(
        self, options: Options, more: Sequence[str] = (), kept: Sequence[str] | None = None
    ) -> tuple[DictConfig, Method]:
        """The configuration that ``options`` name, and the method under all of them.

        Options of Soft Reasoning choose it where the default is another method and none is named. A
        temperature alone does not: many methods have one, and clients send it with every request. ``kept``
        are the reasoner's words; None keeps all.
        """
        own, words = self._words if kept is None else kept, [*named(options), *more]
        chosen = options.get("method")
        try:
            config, method = self._built((*own, *words))
            return config, replaced(method if isinstance(chosen, str | None) else chosen, options)
        except NoSuchOption as error:
            named_method = chosen is not None or "method" in typed_keys(own)
            if named_method or (error.name == "temperature" and options.keys().isdisjoint(OF_A_SEARCH)):
                raise
            config, method = self._built((*own, "method=soft_reasoning", *words))
            return config, replaced(method, options)

    def _built(self, words: tuple[str, ...]) -> tuple[DictConfig, Method]:
        with self._composing:
            if words not in self._composed:
                config = self._compose(words)
                self._composed[words] = config, build_method(config)
            return self._composed[words]

    def _compose(self, words: Sequence[str]) -> DictConfig:
        config = compose_config(words)
        for key, value in self._settings.items():
            OmegaConf.update(config, key, value)
        if self._wording is not None:
            config.prompt = self._wording
        fit_prompt(config, "answer_type", self._type or _prompted(config), words)
        if config.methods is not None:
            raise UserError(
                "overrides: expected one method, got a comparison; use method=NAME, or compare "
                "with soft-reasoning compare"
            )
        return config


def _is_of_a_method(word: str) -> bool:
    """Whether an option belongs to a method or its parts, and not to every run."""
    [key] = typed_keys([word])
    return re.split(r"[.@/]", key)[0] in {"preset", *PARTS, *SHORT} - {*FOR_ANY}


def _model_words(model: str) -> list[str]:
    """The words that name a model: a choice, a name on the hub, or a folder, perhaps the bundled one's."""
    if model in choices("model"):
        return [f"model={model}"]
    return [f"model={'demo' if is_bundled(model) else 'custom'}", f"model.path={quoted(model)}"]


def _prompted(config: DictConfig) -> str:
    """The type of answers that the prompt asks for."""
    types = [OmegaConf.select(config, f"prompt.{key}") for key in ("answer_type", "default_answer_type")]
    return str(types[0] or types[1] or "number")
