"""Building what a run consists of from its configuration, and checks that the parts fit together."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any, NoReturn, cast

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue

from soft_reasoning.checks import OptionError
from soft_reasoning.configuration.compose import PROMPT_SETTINGS, compose_config, prompt_for, quoted
from soft_reasoning.configuration.errors import one_line
from soft_reasoning.engine.base import Engine
from soft_reasoning.engine.paths import is_bundled
from soft_reasoning.judge.model_verifier import ModelVerifier
from soft_reasoning.judge.programs import Programs
from soft_reasoning.prompts import Exemplar, Prompts, Wording
from soft_reasoning.schedule.job import Job
from soft_reasoning.schedule.method import Context, Limits, Method
from soft_reasoning.types import Problem, UserError

_REFERENCE = re.compile(r"\$\{(\.*)([\w.]+)\}")
"""A reference of OmegaConf to another key; dots before it start from where it stands."""


def built(config: DictConfig, key: str) -> Any:
    """Build the part at ``key`` of ``config``, and the parts inside it first.

    Raises:
        UserError: In one line with the option's full key, for a class that cannot be imported, for options
            that it does not take, and for a value that it rejects.
    """
    try:
        part = OmegaConf.select(deepcopy(config), key, throw_on_missing=True)  # Hydra resolves it in place
        return instantiate(part, _convert_="all")
    except InstantiationException as error:
        _refuse(error, config, key)
    except MissingMandatoryValue as error:
        missing = origin(plain(config, resolve=False), str(error.full_key))
        raise UserError(f"{missing}: expected a value, got none; add {missing}=VALUE") from error
    except Exception as error:
        if (line := one_line(error)) is None:
            raise
        raise UserError(line) from error


def _refuse(error: InstantiationException, config: DictConfig, key: str) -> NoReturn:
    """Raise a part's error again, with the full key of the option that it names."""
    cause = error.__cause__
    where = match[1] if (match := re.search(r"full_key: (\S+)", str(error))) else key
    data = plain(config, resolve=False)
    if isinstance(cause, OptionError):
        raise type(cause)(origin(data, _place(data, where, cause.name)), cause.message) from error
    if isinstance(cause, UserError):
        raise cause from error
    target = OmegaConf.select(config, f"{where}._target_")
    said = str(cause and cause.__cause__ or cause or error).splitlines()[0]
    raise UserError(
        f"{origin(data, where)}: expected a class or function and options that it takes, got {target} "
        f"({said:.300})"
    ) from error


def _place(data: Mapping[str, object], key: str, name: str) -> str:
    """The key of the option ``name`` of the part at ``key``, or of a part inside that it passes on."""
    node = _node(data, key)
    inner = [child for child in node if name not in node and name in _node(data, f"{key}.{child}")]
    return ".".join([key, *inner[:1], name])


def _node(data: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The mapping at ``key``, after following references; empty if there is none."""
    node: Any = data
    for part in origin(data, key).split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return cast(Mapping[str, object], node) if isinstance(node, Mapping) else {}


def origin(data: Mapping[str, object], key: str) -> str:
    """Return the key at which the value at ``key`` is set, after following references.

    Args:
        data: A configuration with its references as they are written.
        key: A full key; its last parts need not exist.

    Example:
        >>> origin({"k": 5, "method": {"k": "${k}"}}, "method.k")
        'k'
    """
    parts, node = key.split("."), cast(Any, data)
    for i, part in enumerate(parts):
        node = node.get(part) if isinstance(node, Mapping) else None
        if isinstance(node, str) and (reference := _REFERENCE.fullmatch(node)):
            up, name = len(reference[1]), reference[2]
            above = parts[: i + 1 - up] if up else []
            return origin(data, ".".join([*above, name, *parts[i + 1 :]]))
    return key


def check_values(config: DictConfig) -> None:
    """Reject wrong values of the grader and of the limits, which need no model.

    Raises:
        UserError: In one line.
    """
    built(config, "grader")
    Limits(config.max_tokens, config.max_seconds)


def build_engine(config: DictConfig) -> Engine:
    """Load the model, after the values that need none are checked."""
    check_values(config)
    if config.model.adapter and "adapter" not in config.engine:
        raise UserError(
            f"model.adapter: expected an engine that loads adapters, got {config.engine._target_}; "
            "use engine=hf"
        )
    silent = "path" in config.engine and not (config.progress and sys.stderr.isatty())
    with _no_bars() if silent else nullcontext():
        engine: Engine = built(config, "engine")
    engine.settings = plain(config.engine)
    return engine


@contextmanager
def _no_bars() -> Generator[None]:
    """Hide the progress bars of transformers and the hub while weights are loaded."""
    from transformers.utils import logging

    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()


def plain(config: DictConfig, *, resolve: bool = True) -> dict[str, Any]:
    """``config`` as plain data, with interpolations resolved or as they are written."""
    return cast(dict[str, Any], OmegaConf.to_container(config, resolve=resolve))


class SecondModels:
    """Further models, such as judges, each loaded once. Their owner closes them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[tuple[str, str | None], tuple[DictConfig, Engine]] = {}

    def load(self, name: str, device: str | None) -> tuple[DictConfig, Engine]:
        """Return the default configuration of the model ``name``, and its engine."""
        with self._lock:
            if (name, device) not in self._loaded:
                config = compose_config([f"model={name}", f"engine.device={quoted(device)}"])
                try:
                    self._loaded[name, device] = config, build_engine(config)
                except UserError as error:  # it names model.path, which is the run's own
                    raise UserError(f"second model {name}: {error}") from error
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


def build_context(
    config: DictConfig,
    engine: Engine,
    exemplars: Sequence[Exemplar] = (),
    models: SecondModels | None = None,
    method: Method | None = None,
) -> Context:
    """Build the context of a run's methods.

    Args:
        config: The configuration.
        engine: The run's engine.
        exemplars: The data set's exemplars.
        models: Loads other models that the method names; by default they belong to the context.
        method: The method, if it is not the configuration's.
    """
    method = method or build_method(config)
    room = engine.max_new_tokens or engine.context_length
    context = Context(
        engine=engine,
        prompts=build_prompts(config, engine.tokenizer, exemplars, method, room),
        grader=built(config, "grader"),
        seed=config.seed,
        limits=Limits(config.max_tokens, config.max_seconds),
    )
    parts = _worded_parts(method)
    names = dict.fromkeys(name for part in parts if (name := getattr(part, "model", None)))
    models = models or SecondModels()
    judges = {name: _judge(name, config, context, exemplars, models, method) for name in names}
    return replace(context, judges=judges)


def _asking(config: DictConfig, answer_type: str) -> DictConfig:
    """Return ``config`` with the prompt of another type of answer."""
    asked = config.copy()
    suited = _shipped(prompt_for(answer_type, config.prompt.get("others")))
    asked.prompt = {**suited, **{key: config.prompt[key] for key in PROMPT_SETTINGS}}
    return asked


@cache
def _shipped(prompt: str) -> DictConfig:
    return compose_config([f"prompt={prompt}"]).prompt


def _judge(
    name: str,
    config: DictConfig,
    run: Context,
    exemplars: Sequence[Exemplar],
    models: SecondModels,
    method: Method,
) -> Context:
    """Return the context of a judge, a model other than the run's.

    It has the run's prompts, unless either is the bundled model, whose prompt suits no other model.
    """
    defaults, engine = models.load(name, config.engine.get("device"))
    if is_bundled(name) or is_bundled(str(config.model.path)):
        prompts = build_prompts(defaults, engine.tokenizer, exemplars)
    else:
        prompts = build_prompts(config, engine.tokenizer, exemplars, method)
    return replace(run, engine=engine, prompts=prompts)


def build_prompts(
    config: DictConfig,
    tokenizer: Any,
    exemplars: Sequence[Exemplar] = (),
    method: Method | None = None,
    room: int | None = None,
) -> Prompts:
    """Build prompts.

    Problems with a type of answer that the prompt does not ask for get the prompt of that type, without
    exemplars.

    Args:
        config: The configuration.
        tokenizer: The model's tokenizer.
        exemplars: Shown in the prompts.
        method: What the prompts of other types must have wording for. Without it there are no others.
        room: Tokens per solution where the prompt leaves the limit to the model.
    """

    def other(answer_type: str) -> Prompts:
        asked = _asking(config, answer_type)
        if method is not None:
            _check_reviews(asked, method)
        return build_prompts(asked, tokenizer, room=room)

    settings = plain(config.prompt)
    options = {key: settings[key] for key in PROMPT_SETTINGS}
    return Prompts(
        tokenizer,
        built(config, "prompt.wording"),
        exemplars=exemplars,
        max_new_tokens=room if settings.get("max_new_tokens") == "model" else None,
        answer_type=settings.get("answer_type"),
        others=None if method is None else other,
        **options,
    )


def build_method(config: DictConfig) -> Method:
    """Build the method that ``config.method`` names, with its parts."""
    return built(config, "method")


def writes_programs(method: Method) -> bool:
    """Whether the method, its judge or one of several judges computes answers with programs."""
    return any(isinstance(part, Programs) for part in _worded_parts(method))


def check_wording(config: DictConfig, method: Method) -> None:
    """Reject a prompt without wording for the method's parts, before a model is loaded.

    A prompt of open answers asks for programs where a question names a number as its type of answer.

    Raises:
        UserError: In one line.
    """
    wording = _check_reviews(config, method)
    if _asks_openly(config):
        wording = built(_asking(config, "number"), "prompt.wording")
    for part in _worded_parts(method):
        if isinstance(part, Programs) and not part.model:
            part.check_wording(wording)


def _check_reviews(config: DictConfig, method: Method) -> Wording:
    """Return the prompt's wording; raise UserError if it has none for the method's reviews."""
    wording: Wording = built(config, "prompt.wording")
    for part in _worded_parts(method):
        if isinstance(part, ModelVerifier) and part.presentation.shows_candidates:
            wording.review(part.name)
    return wording


def _worded_parts(method: Method) -> list[Any]:
    return [method, getattr(method, "programs", None), getattr(method, "verifier", None)]


def _asks_openly(config: DictConfig) -> bool:
    return config.prompt.get("answer_type") == "open"


def check_fits(config: DictConfig, method: Method, context: Context) -> None:
    """Reject a second model whose prompt asks for no programs, as :func:`check_wording` does.

    Raises:
        UserError: In one line that names the difference.
    """
    for part in _worded_parts(method):
        if isinstance(part, Programs):
            prompts = part.judge(context).prompts
            part.check_wording((prompts.of("number") if _asks_openly(config) else prompts).wording)


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


def check_solvable(jobs: Sequence[Job[Any]]) -> None:
    """Reject the jobs of a call if one of their problems cannot be solved.

    Raises:
        UserError: In one line.
    """
    for job in jobs[:1]:
        check_problems([job.problem for job in jobs], job.context)
