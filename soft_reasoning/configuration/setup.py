"""What a reasoner knows before its model is loaded: its prompt, its method, and the defaults of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import cast

from soft_reasoning.answers import ANSWER_TYPES, AnswerGrader
from soft_reasoning.checks import choice
from soft_reasoning.configuration.context import (
    Config,
    SecondModels,
    check_wording,
    fit_prompt,
    prompt_for,
    with_judges,
    writes_programs,
)
from soft_reasoning.configuration.data import Entry, PromptLike, read_model, read_prompt
from soft_reasoning.configuration.options import FOR_ANY, Options, checked, chosen_method
from soft_reasoning.configuration.parts import Setting
from soft_reasoning.configuration.registry import PRESETS
from soft_reasoning.prompts import Exemplar
from soft_reasoning.schedule.method import Context, Limits, Method
from soft_reasoning.schedule.scheduler import MAX_LIVE
from soft_reasoning.types import MAX_NEW_TOKENS


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The defaults of a reasoner, and what a call makes of them.

    Attributes:
        model: The model's name in ``conf/models.yaml`` or on the hub, or its folder.
        setting: The defaults of methods and parts.
        prompt: The settings of the prompt.
        method: The default method.
        options: The default options, which are part of ``method``; those that hold for any method also act
            on other methods.
        exemplars: Worked problems in the prompt.
        grader: How answers are read and compared; None is that of ``setting``.
        cache: A folder for finished completions.
        max_live: Questions that are solved at a time.
    """

    model: str
    setting: Setting
    prompt: Config
    method: Method
    options: Options = field(default_factory=Options)
    exemplars: Sequence[Exemplar] = ()
    grader: AnswerGrader | None = None
    cache: str | PathLike[str] | None = None
    max_live: int = MAX_LIVE

    @classmethod
    def from_options(
        cls,
        model: str,
        prompt: PromptLike | None,
        answer_type: str | None,
        options: Options,
        loading: Config | None = None,
    ) -> Setup:
        """Read what the model and the prompt say, and build the default method.

        Args:
            model: The model's name.
            prompt: A prompt; None chooses by the model, ``answer_type`` and the method.
            answer_type: The type of answers; None is the prompt's.
            options: The default options.
            loading: Values that replace those of the model.

        Raises:
            UserError: In one line, for options that do not exist or do not fit.
        """
        if answer_type is not None:
            choice("answer_type", answer_type, ANSWER_TYPES)
        known = read_model(model)
        known = Entry({**known.values, **(loading or {})}, known.chooses)
        own = known.chooses.get("prompt")
        named = prompt if prompt is not None else own or prompt_for(answer_type or "open")
        self = cls._with(model, known, read_prompt(named), options)
        if prompt is None and own is None and answer_type is None and writes_programs(self.method):
            # Programs compute numbers.
            self = cls._with(model, known, read_prompt(prompt_for("number")), options)
        if answer_type in (None, "open") and self.answer_type == "open":
            self = replace(self, prompt={**self.prompt, "answer_type": "open"})
        self = replace(self, prompt=fit_prompt(self.prompt, answer_type))
        if self.prompt.get("answer_type") is None and answer_type is not None:
            self = replace(self, prompt={**self.prompt, "default_answer_type": answer_type})
        check_wording(self.prompt, self.method)
        return self

    @classmethod
    def _with(cls, name: str, model: Entry, prompt: Entry, options: Options) -> Setup:
        setting = Setting(
            model=model.values,
            choices={**prompt.chooses, **model.chooses},
            max_new_tokens=model.values.get("max_new_tokens", MAX_NEW_TOKENS),
        )
        method = chosen_method(options, setting, None)
        return cls(model=name, setting=setting, prompt=prompt.values, method=method, options=options)

    @property
    def answer_type(self) -> str:
        """The type of answers, where a question names none."""
        return self.prompt.get("answer_type") or self.prompt.get("default_answer_type") or "number"

    def solving(self, changes: Options, context: Context, models: SecondModels) -> tuple[Method, Context]:
        """Return the method and the context of a call with the options ``changes``.

        With another method, the options that belong to the default method are dropped.

        Args:
            changes: The options of the call.
            context: The reasoner's context, without second models.
            models: Loads second models.

        Raises:
            UserError: In one line, for options that do not exist or do not fit.
        """
        changes = checked(changes, "solve")
        defaults: Config = self.options
        own = self.options.get("method") or self.method.name
        if changes.get("method") not in (None, own) or changes.get("preset"):
            defaults = {name: value for name, value in defaults.items() if name in FOR_ANY}
            method = chosen_method(cast(Options, {**defaults, **changes}), self.setting, None)
        else:
            same = cast(Options, {name: value for name, value in changes.items() if name != "method"})
            method = chosen_method(same, self.setting, self.method)
        if method is not self.method:
            check_wording(self.prompt, method)
        options = cast(Options, {**defaults, **changes})
        ending = options.get("stop") or (), options.get("max_new_tokens")
        context = replace(
            context,
            prompts=context.prompts.ending(*ending),
            limits=Limits(options.get("max_tokens"), options.get("max_seconds")),
            seed=options.get("seed") or 0,
        )
        if name := PRESETS.get(options.get("preset") or "default", {}).get("grader"):
            context = replace(context, grader=self.setting.build("grader", name))
        return method, with_judges(context, method, self.prompt, self.model, models)
