"""What an unfinished solution is worth: V(prefix), the reward that its end may be expected to bring.

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

from soft_reasoning.context import Context
from soft_reasoning.rewards.yes_no import ask_yes_no
from soft_reasoning.types import Effect, NextLogits, Problem, Prompt, UserError

TASK = "prefix_right"
"""The entry of ``wording.tasks`` that asks whether a solution is right so far; its field is {partial}."""


@dataclass(frozen=True)
class Prefix:
    """The beginning of a solution: its ``ids`` behind the prompt, without the end-of-sequence token, and
    its ``text``, cut before a stop string. ``ended`` is "eos" or "stop" where it is whole, else empty."""

    ids: tuple[int, ...]
    text: str
    ended: str = ""


class PrefixValue(Protocol):
    def values(
        self, problem: Problem, prompt: Prompt, prefixes: Sequence[Prefix], context: Context
    ) -> Generator[Effect, Any, Tensor]:
        """(n,) float64, one a prefix of ``prompt``'s completion."""
        ...


@dataclass(frozen=True)
class SelfJudged:
    """How probable the frozen model finds Yes, against No, when asked if the solution is right so far."""

    def values(self, problem, prompt, prefixes, context):
        problem = problem.without_gold()
        asked = [
            context.prompts.task(TASK, problem, partial=" ".join(prefix.text.split())) for prefix in prefixes
        ]
        return (yield from ask_yes_no(asked, context.engine.tokenizer, role="verifier"))


class LinearHead:
    """A trained scorer, linear in the model's last hidden state, from a file of ``save_head``.

    It reads the state through the next-token logits of a fixed set of tokens. They are a linear image of
    it (but for models that bend their logits, such as Gemma 2), and of full rank when there are more
    tokens than dimensions, so no engine needs to show its hidden states.
    """

    def __init__(self, path: str) -> None:
        file = Path(path).expanduser()
        if not file.is_file():
            raise UserError(f"method.head: expected a trained head, found no file {file}; "
                            "experiments/train_prefix_head.py makes one")  # fmt: skip
        try:
            held = load_file(file)
            self.ids = tuple(held["ids"].tolist())
            self.weight, self.bias = held["weight"].double(), held["bias"].double()
        except (SafetensorError, KeyError) as error:
            raise UserError(
                f"method.head: expected a file of experiments/train_prefix_head.py, got {file} ({error})"
            ) from error

    def values(self, problem, prompt, prefixes, context):
        read = [prompt.followed_by(prefix.ids) for prefix in prefixes]
        logits = yield NextLogits(read, self.ids, "verifier")
        return head_values(logits, self.weight, self.bias)


def fit_head(logits: Tensor, rewards: Tensor, *, ridge: float = 1e-3) -> tuple[Tensor, Tensor]:
    """Weights (F,) and bias () of least squared error from ``logits`` (n, F), less their mean, to ``rewards``
    (n,).

    Each prefix of a rollout is a row, with the rollout's final reward (FUDGE). ``ridge`` is the
    penalty in units of the mean variance of a feature.
    """
    X, y = _centred(logits), rewards.double()
    centre, mean = X.mean(0), y.mean()
    X = X - centre
    gram = X.T @ X / len(X)
    penalty = ridge * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    weight = torch.linalg.solve(gram + penalty, X.T @ (y - mean) / len(X))
    return weight, mean - centre @ weight


def head_values(logits: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(n,) float64: a head's values for ``logits`` (n, F)."""
    return _centred(logits) @ weight + bias


def _centred(logits: Tensor) -> Tensor:
    """``logits`` (n, F) less each row's mean: what an engine adds to all of a row does not matter."""
    logits = logits.double()
    return logits - logits.mean(-1, keepdim=True)


def save_head(file: Path, ids: Sequence[int], weight: Tensor, bias: Tensor) -> None:
    """Write a head for :class:`LinearHead`: ``weight`` (F,) and ``bias`` () for the logits of ``ids``."""
    save_file({"ids": torch.tensor(list(ids)), "weight": weight.clone(), "bias": bias.clone()}, file)
