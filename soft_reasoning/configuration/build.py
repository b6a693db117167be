"""Building what a run consists of from its configuration, and checks that the parts fit together."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.configuration.implied import is_bundled
from soft_reasoning.configuration.overrides import Override
from soft_reasoning.configuration.parts import built
from soft_reasoning.data.dataset import Dataset
from soft_reasoning.data.exemplars import Exemplar
from soft_reasoning.engines.base import Engine
from soft_reasoning.prompts import Prompts
from soft_reasoning.rewards.programs import Programs
from soft_reasoning.rewards.verifiers import ModelVerifier
from soft_reasoning.scheduling.context import Context, Limits
from soft_reasoning.scheduling.method import Method
from soft_reasoning.types import Problem, UserError

SECOND_MODELS = ("verifier.model", "method.model", "method.programs.model")
"""Keys that may name a model other than the run's."""


def build_engine(config: DictConfig) -> Engine:
    """Load the model."""
    if config.model.adapter and "adapter" not in config.engine:
        raise UserError(f"this engine takes no adapters, got {config.engine._target_}; use engine=hf")
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


def plain(config: DictConfig) -> dict[str, Any]:
    """``config`` as plain data, interpolations resolved."""
    return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))


def build_dataset(config: DictConfig) -> Dataset:
    """Build the data set that ``config.dataset`` names."""
    return built(config, "dataset")


class SecondModels:
    """Models beside the run's, such as judges, each loaded once. Their owner closes them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[tuple[str, str | None], tuple[DictConfig, Engine]] = {}

    def load(self, name: str, device: str | None) -> tuple[DictConfig, Engine]:
        """Return the default configuration of the model ``name``, and its engine."""
        with self._lock:
            if (name, device) not in self._loaded:
                config = compose_config([Override("model", name), Override.of("engine.device", device)])
                self._loaded[name, device] = config, build_engine(config)
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
) -> Context:
    """Build the context of a run's methods.

    Args:
        config: The configuration.
        engine: The run's engine.
        exemplars: The data set's exemplars.
        models: Loads other models that the configuration names; by default they belong to the context.
    """
    prompts = build_prompts(config, engine.tokenizer, exemplars)
    if config.prompt.get("max_new_tokens") == "model":
        prompts = prompts.ending(
            max_new_tokens=getattr(engine, "max_new_tokens", None) or engine.context_length
        )
    context = Context(
        engine=engine,
        prompts=prompts,
        grader=built(config, "grader"),
        seed=config.seed,
        limits=Limits(config.max_tokens, config.max_seconds),
    )
    names = dict.fromkeys(name for key in SECOND_MODELS if (name := OmegaConf.select(config, key)))
    models = models or SecondModels()
    return replace(context, judges={name: _judge(name, config, context, exemplars, models) for name in names})


def _judge(
    name: str, config: DictConfig, run: Context, exemplars: Sequence[Exemplar], models: SecondModels
) -> Context:
    """Return the context of a judge, a model other than the run's.

    It has the run's prompt, unless either is the bundled model, whose prompt suits no other model.
    """
    defaults, engine = models.load(name, config.engine.get("device"))
    wording = defaults if is_bundled(name) or is_bundled(str(config.model.path)) else config
    return replace(run, engine=engine, prompts=build_prompts(wording, engine.tokenizer, exemplars))


def build_prompts(config: DictConfig, tokenizer: Any, exemplars: Sequence[Exemplar]) -> Prompts:
    """Build the prompts of a run, with ``exemplars`` shown in them."""
    settings = plain(config.prompt)
    options = {key: settings[key] for key in ("layout", "system", "date", "chat_options")}
    return Prompts(tokenizer, built(config, "prompt.wording"), exemplars=exemplars, **options)


def build_method(config: DictConfig) -> Method:
    """Build the method that ``config.method`` names, with its parts."""
    return built(config, "method")


def writes_programs(method: Method) -> bool:
    """Whether the method or its judge computes answers with programs."""
    return any(isinstance(part, Programs) for part in _worded_parts(method))


def check_wording(config: DictConfig, method: Method) -> None:
    """Reject a prompt without wording for the method's parts, before a model is loaded.

    Raises:
        UserError: In one line.
    """
    wording = built(config, "prompt.wording")
    for part in _worded_parts(method):
        if isinstance(part, ModelVerifier) and part.presentation.shows_candidates:
            wording.review(part.name)
        elif isinstance(part, Programs) and not part.model:
            part.check_wording(wording)


def _worded_parts(method: Method) -> list[Any]:
    return [method, getattr(method, "programs", None), getattr(method, "verifier", None)]


def check_fits(method: Method, context: Context) -> None:
    """Reject a model that is to write programs and whose prompt does not ask for any.

    Raises:
        UserError: In one line.
    """
    for part in _worded_parts(method):
        if isinstance(part, Programs):
            part.check_wording(part.judge(context).prompts.wording)


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
        length = len(context.prompts.solve(problem).ids)
        if length >= room:
            fewer = "fewer exemplars (dataset.shots)" if context.prompts.exemplars else "a shorter question"
            raise UserError(
                f"problem {problem.name}: the prompt has {length} tokens and the model has {room} for prompt "
                f"and answer; use {fewer} or a model with a longer context"
            )
