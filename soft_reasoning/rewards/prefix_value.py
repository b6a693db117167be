"""The value V of an unfinished solution: the expected reward of its end.

A value is a generator like a verifier: it yields effects and returns numbers. Without training the model
itself is asked; a trained head reads the model's state.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
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


class PrefixValue(Protocol):
    """Scores unfinished solutions."""

    def values(
        self, problem: Problem, prompt: Prompt, prefixes: Sequence[Prefix], context: Context
    ) -> Generator[Effect, Any, Tensor]:
        """Return values (n,) float64, one per prefix of ``prompt``'s completion."""
        ...


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
    """A trained scorer from a file of ``save_head``, linear in the model's last hidden state.

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


def fit_head(logits: Tensor, rewards: Tensor, *, ridge: float = 1e-3) -> tuple[Tensor, Tensor]:
    """Fit weights (F,) and bias () from centred ``logits`` (n, F) to ``rewards`` (n,) by least squares.

    Each prefix of a rollout is a row with the rollout's final reward (FUDGE). ``ridge`` is the penalty in
    units of a feature's mean variance.
    """
    X, y = _centred(logits), rewards.double()
    centre, mean = X.mean(0), y.mean()
    X = X - centre
    gram = X.T @ X / len(X)
    penalty = ridge * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    weight = torch.linalg.solve(gram + penalty, X.T @ (y - mean) / len(X))
    return weight, mean - centre @ weight


def head_values(logits: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return a head's values (n,) float64 for ``logits`` (n, F)."""
    return _centred(logits) @ weight + bias


def _centred(logits: Tensor) -> Tensor:
    """``logits`` (n, F) minus each row's mean, since engines may add a constant to a row."""
    logits = logits.double()
    return logits - logits.mean(-1, keepdim=True)


def save_head(file: Path, ids: Sequence[int], weight: Tensor, bias: Tensor) -> None:
    """Write a head for :class:`LinearHead`: ``weight`` (F,) and ``bias`` () for the logits of ``ids``."""
    save_file({"ids": torch.tensor(list(ids)), "weight": weight.clone(), "bias": bias.clone()}, file)
