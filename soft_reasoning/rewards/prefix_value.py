"""The value V of an unfinished solution: the expected reward of its end.

A value is a generator like a verifier: it yields effects and returns numbers. Without training the model
itself is asked; a trained head reads the model's state.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from soft_reasoning.rewards.yes_no import ask_yes_no
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.effects import next_logits
from soft_reasoning.types import Effect, Problem, Prompt, UserError

TASK = "prefix_right"
"""The entry of ``wording.tasks`` that asks whether a solution is right so far; its field is {partial}."""


@dataclass(frozen=True)
class Prefix:
    """The beginning of a solution.

    Attributes:
        ids: Its tokens after the prompt, without end of sequence.
        text: Its text, cut before a stop string.
        ended: ``eos`` or ``stop`` if it is complete, else empty.
    """

    ids: tuple[int, ...]
    text: str
    ended: str = ""


@dataclass(frozen=True)
class SelfJudged:
    """The probability of Yes against No when the model is asked whether the solution is right so far."""

    def values(
        self, problem: Problem, prompt: Prompt, prefixes: Sequence[Prefix], context: Context
    ) -> Generator[Effect, Any, Tensor]:
        problem = problem.without_gold()
        asked = [
            context.prompts.task(TASK, problem, partial=" ".join(prefix.text.split())) for prefix in prefixes
        ]
        return (yield from ask_yes_no(asked, context.engine.tokenizer, role="verifier"))


class LinearHead:
    """A trained scorer (experiments/train_prefix_head.py), linear in the model's last hidden state.

    It reads the state through the next-token logits of a fixed set of tokens. Logits are a linear image of
    the state (except in models that bend them, such as Gemma 2), of full rank if there are more tokens than
    dimensions. So no engine needs to show its hidden states.
    """

    def __init__(self, path: str) -> None:
        if not isinstance(path, str):
            raise UserError(
                f"method.head: expected a file of experiments/train_prefix_head.py, got {path!r:.40}"
            )
        file = Path(path).expanduser()
        if not file.is_file():
            raise UserError(f"method.head: expected a trained head, found no file {file}; "
                            "experiments/train_prefix_head.py makes one")  # fmt: skip
        try:
            content = load_file(file)
            self.ids: tuple[int, ...] = tuple(content["ids"].tolist())
            self.weight: Tensor = content["weight"].double()
            self.bias: Tensor = content["bias"].double()
        except (SafetensorError, KeyError) as error:
            raise UserError(
                f"method.head: expected a file of experiments/train_prefix_head.py, got {file} ({error})"
            ) from error

    def values(
        self, problem: Problem, prompt: Prompt, prefixes: Sequence[Prefix], context: Context
    ) -> Generator[Effect, Any, Tensor]:
        read = [prompt.followed_by(prefix.ids) for prefix in prefixes]
        logits = yield from next_logits(read, self.ids, role="verifier")
        return head_values(logits, self.weight, self.bias)


def head_values(logits: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return a head's values (n,) float64 for ``logits`` (n, F)."""
    return centred(logits) @ weight + bias


def centred(logits: Tensor) -> Tensor:
    """``logits`` (n, F) minus each row's mean, since engines may add a constant to a row."""
    logits = logits.double()
    return logits - logits.mean(-1, keepdim=True)
