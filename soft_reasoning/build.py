"""From a configuration to the parts of a run. ``_target_`` names the classes; nothing is registered."""

from __future__ import annotations

from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from soft_reasoning.context import Context
from soft_reasoning.engines.base import Engine
from soft_reasoning.prompts import Prompts
from soft_reasoning.types import Problem, UserError


def build_engine(config: DictConfig) -> Engine:
    """Load the model."""
    return instantiate(config.engine)


def build_dataset(config: DictConfig) -> Any:
    return instantiate(config.dataset)


def build_context(config: DictConfig, engine: Engine, exemplars=()) -> Context:
    """What methods look things up in. ``exemplars`` come from the data set."""
    prompt = config.prompt
    prompts = Prompts(
        engine.tokenizer,
        instantiate(prompt.wording, _convert_="all"),
        exemplars=exemplars,
        layout=prompt.layout,
        system=prompt.system,
        chat_options=OmegaConf.to_container(prompt.chat_options, resolve=True),
    )
    return Context(engine=engine, prompts=prompts, grader=instantiate(config.grader), seed=config.seed)


def build_method(config: DictConfig):
    return instantiate(config.method, _convert_="all")


def check_lengths(problems: list[Problem], context: Context) -> None:
    """Refuse prompts that leave no room for an answer, before any model work is done."""
    room = context.engine.context_length
    for problem in problems:
        length = len(context.prompts.solve(problem).ids)
        if length >= room:
            raise UserError(
                f"problem {problem.id}: the prompt has {length} tokens and the model takes {room} with its "
                "answer; use fewer exemplars (dataset.shots) or a model with a longer context"
            )
