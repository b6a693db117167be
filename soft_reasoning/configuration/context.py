"""What methods read during a run: engine, prompts, grader and second models, built from plain data.

Python, the command line and the server build them here; a command's configuration is data of this kind, too.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.configuration.data import PROMPT_SETTINGS, read_model, read_prompt
from soft_reasoning.configuration.parts import Setting, make
from soft_reasoning.engine.base import Engine, lacks
from soft_reasoning.engine.paths import is_bundled
from soft_reasoning.judge.model_verifier import ModelVerifier
from soft_reasoning.judge.programs import Programs
from soft_reasoning.prompts import Exemplar, Prompts, ReviewWording, TaskWording, Wording
from soft_reasoning.schedule.method import Context, Limits, Method
from soft_reasoning.types import Problem, UserError

Config = Mapping[str, Any]
"""Plain data: a run's configuration, or a prompt as :func:`~soft_reasoning.configuration.data.read_prompt`
returns it."""


def prompt_for(answer_type: str, others: Mapping[str, str] | None = None) -> str:
    """Return the name of the prompt for a type of answer; ``others`` of a prompt go first."""
    return {"number": "math", "open": "any", **(others or {})}.get(answer_type, answer_type)


def prompt_of_type(prompt: Config, answer_type: str) -> Config:
    """Return the settings of the prompt for another type of answer, with the layout of ``prompt``."""
    suited = read_prompt(prompt_for(answer_type, prompt.get("others"))).values
    return {**suited, **{key: prompt[key] for key in PROMPT_SETTINGS}}


def fit_prompt(prompt: Config, answer_type: str | None, name: str = "answer_type") -> Config:
    """Return a prompt's settings, or those of the prompt that it names for ``answer_type``.

    A custom prompt that names no type is accepted for every type. ``name`` is the option in messages.

    Raises:
        UserError: If the prompt asks for answers of another type.
    """
    prompted, others = prompt.get("answer_type"), prompt.get("others") or {}
    if answer_type is None or prompted in (None, answer_type):
        return prompt
    if answer_type in others:
        return prompt_of_type(prompt, answer_type)
    raise UserError(
        f"{name}={answer_type}: expected a prompt that asks for such answers, got a prompt for {prompted}; "
        f"use prompt={prompt_for(answer_type)} or {name}={prompted}"
    )


def build_wording(prompt: Config) -> Wording:
    """Return the wording of a prompt.

    Raises:
        UserError: With the full key of a text that cannot be filled in.
    """
    texts = dict(prompt["wording"])
    for key, kind in (("reviews", ReviewWording), ("tasks", TaskWording)):
        entries = cast(Mapping[str, Any], texts.get(key) or {})
        texts[key] = {name: _worded(kind, f"{key}.{name}", entry) for name, entry in entries.items()}
    return _worded(Wording, "", texts)


def _worded(kind: type[Any], where: str, texts: Any) -> Any:
    if not isinstance(texts, Mapping):
        raise UserError(f"prompt.wording.{where}: expected keys such as ask, got {texts!r:.80}")
    target = f"{kind.__module__}.{kind.__qualname__}"
    return make({**texts, "_target_": target}, f"prompt.wording.{where}".strip("."))


def build_prompts(prompt: Config, engine: Engine, exemplars: Sequence[Exemplar] = ()) -> Prompts:
    """Return the prompts of a run, which know those for other types of answer, without ``exemplars``."""
    prompt = make(prompt)
    from_model = prompt.get("max_new_tokens") == "model"
    return Prompts(
        engine.tokenizer,
        build_wording(prompt),
        exemplars=exemplars,
        max_new_tokens=engine.max_new_tokens or engine.context_length if from_model else None,
        answer_type=prompt.get("answer_type"),
        others=lambda answer_type: build_prompts(prompt_of_type(prompt, answer_type), engine),
        **{key: prompt[key] for key in PROMPT_SETTINGS},
    )


def build_engine(config: Config) -> Engine:
    """Load the model of a configuration: its ``engine``, a choice as plain data, and its ``model``."""
    settings = config["engine"]
    if config["model"].get("adapter") and "adapter" not in settings:
        raise UserError(f"model.adapter: expected engine=hf, which loads one, got {settings['_target_']}")
    engine: Engine = make(settings, "engine")
    engine.settings = {name: make(value) for name, value in settings.items()}
    return engine


class SecondModels:
    """Further models, such as judges, each loaded once. Their owner closes them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[tuple[str, str | None], tuple[Config, Engine]] = {}

    def load(self, name: str, device: str | None) -> tuple[Config, Engine]:
        """Return the default prompt of the model ``name``, and its engine."""
        with self._lock:
            if (name, device) not in self._loaded:
                model = read_model(name)
                try:
                    node = Setting(model=model.values).node("engine") | {"device": device}
                    engine = build_engine({"engine": node, "model": model.values})
                except UserError as error:  # it names model.path, which is the run's own
                    raise UserError(f"second model {name}: {error}") from error
                prompt = read_prompt(model.chooses.get("prompt", "math")).values
                self._loaded[name, device] = prompt, engine
            return self._loaded[name, device]

    def begin_run(self) -> None:
        """Let every engine forget earlier runs."""
        for _, engine in self._loaded.values():
            engine.begin_run()

    def close(self) -> None:
        """Free all models."""
        with self._lock:
            for _, engine in self._loaded.values():
                engine.close()
            self._loaded.clear()


def with_judges(context: Context, method: Method, prompt: Config, own: str, models: SecondModels) -> Context:
    """Return ``context`` with the second models that ``method`` names, which see the run's prompts.

    Where either model is the bundled one, whose prompt suits no other, a judge has its own default prompt.

    Args:
        context: The context.
        method: The method.
        prompt: The settings of the run's prompt.
        own: The name of the run's model.
        models: Loads the models.

    Raises:
        UserError: In one line, for a model whose prompt asks for no programs where it is to write them, and
            for an engine that lacks what a part of the method needs.
    """
    names = dict.fromkeys(name for part in worded_parts(method) if (name := getattr(part, "model", None)))
    judges: dict[str, Context] = {}
    for name in names:
        default, engine = models.load(name, cast(Any, context.engine.settings.get("device")))
        shown = default if is_bundled(name) or is_bundled(own) else prompt
        judges[name] = replace(
            context, engine=engine, prompts=build_prompts(shown, engine, context.prompts.exemplars)
        )
    if judges:
        context = replace(context, judges=judges)
    for part in worded_parts(method):
        if isinstance(part, Programs) and part.model:
            prompts = judges[part.model].prompts
            part.check_wording((prompts.of("number") if prompts.answer_type == "open" else prompts).wording)
    _check_needs(method, context)
    return context


def build_context(
    config: Config,
    engine: Engine,
    exemplars: Sequence[Exemplar] = (),
    models: SecondModels | None = None,
    method: Method | None = None,
) -> Context:
    """Return the context of a run.

    Args:
        config: The run's configuration.
        engine: Its engine.
        exemplars: The data set's exemplars.
        models: Loads other models that the method names; by default they belong to the context.
        method: The method, if it is not the configuration's.
    """
    limits = Limits(config["max_tokens"], config["max_seconds"])
    grader: AnswerGrader = make(config["grader"], "grader")
    prompts = build_prompts(config["prompt"], engine, exemplars)
    context = Context(engine, prompts, grader, config["seed"], limits)
    own = str(config["model"]["path"])
    return with_judges(
        context, method or build_method(config), config["prompt"], own, models or SecondModels()
    )


def build_method(config: Config) -> Method:
    """Return the method of a run's configuration."""
    return make(config["method"], "method")


def worded_parts(method: Method) -> list[Any]:
    """Return the parts of a method whose prompts may need wording of their own."""
    return [method, getattr(method, "programs", None), getattr(method, "verifier", None)]


def writes_programs(method: Method) -> bool:
    """Whether the method or its verifier computes answers with programs."""
    return any(isinstance(part, Programs) for part in worded_parts(method))


def check_wording(prompt: Config, method: Method) -> None:
    """Reject a prompt without wording for the method's parts, before a model is loaded.

    A prompt of open answers asks for programs where a question names a number as its type of answer.

    Raises:
        UserError: In one line.
    """
    wording = build_wording(prompt)
    for part in worded_parts(method):
        if isinstance(part, ModelVerifier) and part.shows_candidates:
            wording.review(part.name)
    programs = [part for part in worded_parts(method) if isinstance(part, Programs) and not part.model]
    if programs and prompt.get("answer_type") == "open":
        wording = build_wording(prompt_of_type(prompt, "number"))
    for part in programs:
        part.check_wording(wording)


def _check_needs(part: Any, context: Context) -> None:
    """Reject an engine that lacks what ``part``, or a part inside, needs of it."""
    second = getattr(part, "model", None)
    engine = context.judge(second if isinstance(second, str) else None).engine
    if missing := set(getattr(part, "needs", ())) - engine.offers:
        raise UserError(f"{getattr(part, 'name', type(part).__name__)}: {lacks(engine, missing)}")
    for field in fields(part) if is_dataclass(part) else ():
        _check_needs(getattr(part, field.name), context)


def check_problems(problems: Sequence[Problem], context: Context) -> None:
    """Reject unusable problems before any model work.

    Raises:
        UserError: If a prompt leaves no room for an answer, or the grader cannot read a problem's type of
            answer.
    """
    room = context.engine.context_length
    for problem in problems:
        if not context.grader.supports(problem.answer_type):
            raise UserError(
                f"grader: expected a grader for answers of type {problem.answer_type}, got "
                f"{context.grader.name}; use grader=default"
            )
        length = len(context.of(problem).prompts.solve(problem).ids)
        if length >= room:
            fewer = "fewer exemplars (dataset.shots)" if context.prompts.exemplars else "a shorter question"
            raise UserError(
                f"problem {problem.name}: the prompt has {length} tokens and the model has {room} for prompt "
                f"and answer; use {fewer} or a model with a longer context"
            )
