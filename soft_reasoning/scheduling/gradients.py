"""Effects of methods that read hidden states, apply the LM head or follow gradients.

They are answered one problem at a time, so that memory is bounded by a single problem. A backward pass is
counted as two more passes over the same positions, and a pass of the LM head alone as its share of the
positions, rounded up. A problem whose budget is spent gets BudgetSpent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from soft_reasoning.engines.abilities import HiddenStates, LMHead, SoftTokenGradients
from soft_reasoning.scheduling.effects import answers
from soft_reasoning.scheduling.job import BudgetSpent, Job
from soft_reasoning.types import Effect, Request, Usage

T = TypeVar("T")

ROLE = "gradient"
"""The role under which the positions are counted."""


@dataclass(frozen=True, eq=False)
class ReadStates(Effect):
    """Reads the last hidden states (n, D) of a prompt."""

    ids: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class HeadLogits(Effect):
    """``LMHead.lm_head`` of ``states`` (n, D): logits (n, vocabulary)."""

    states: Tensor


@dataclass(frozen=True, eq=False)
class HeadGradient(Effect):
    """``LMHead.lm_head_gradient`` of an ``objective`` at ``states`` (n, D)."""

    states: Tensor
    objective: Callable[[Tensor, slice], Tensor]


@dataclass(frozen=True, eq=False)
class SoftGradient(Effect):
    """``SoftTokenGradients.soft_gradient`` of an ``objective`` at the request's soft tokens."""

    request: Request
    objective: Callable[[Tensor], Tensor]


@answers(ReadStates)
def read_states(jobs: Sequence[Job[ReadStates]], engine: HiddenStates) -> list[Tensor | BudgetSpent]:
    """Run the prompts, and return the states of each."""

    def answer(job: Job[ReadStates]) -> Tensor:
        [states] = engine.hidden_states([Request(job.effect.ids)])
        job.count(ROLE, Usage.of(len(job.effect.ids)))
        return states

    return _within_budget(jobs, answer)


@answers(HeadLogits)
def head_logits(jobs: Sequence[Job[HeadLogits]], engine: LMHead) -> list[Tensor | BudgetSpent]:
    """Apply the LM head."""

    def answer(job: Job[HeadLogits]) -> Tensor:
        logits = engine.lm_head(job.effect.states)
        _count_head(job, engine, len(job.effect.states))
        return logits

    return _within_budget(jobs, answer)


@answers(HeadGradient)
def head_gradient(
    jobs: Sequence[Job[HeadGradient]], engine: LMHead
) -> list[tuple[float, Tensor] | BudgetSpent]:
    """Compute values and gradients through the LM head."""

    def answer(job: Job[HeadGradient]) -> tuple[float, Tensor]:
        value_and_gradient = engine.lm_head_gradient(job.effect.states, job.effect.objective)
        _count_head(job, engine, 3 * len(job.effect.states))
        return value_and_gradient

    return _within_budget(jobs, answer)


@answers(SoftGradient)
def soft_gradient(
    jobs: Sequence[Job[SoftGradient]], engine: SoftTokenGradients
) -> list[tuple[float, Tensor] | BudgetSpent]:
    """Compute values and gradients through the whole model."""

    def answer(job: Job[SoftGradient]) -> tuple[float, Tensor]:
        request = job.effect.request
        value_and_gradient = engine.soft_gradient(request, job.effect.objective)
        length = len(request.prompt_ids) + (0 if request.soft is None else len(request.soft))
        job.count(ROLE, Usage.of(length, recomputed=2 * length))
        return value_and_gradient

    return _within_budget(jobs, answer)


def _within_budget(jobs: Sequence[Job[Any]], answer: Callable[[Job[Any]], T]) -> list[T | BudgetSpent]:
    return [BudgetSpent() if job.spent(1) else answer(job) for job in jobs]


def _count_head(job: Job[Any], engine: LMHead, rows: int) -> None:
    job.count(ROLE, Usage(recomputed_tokens=math.ceil(engine.lm_head_share * rows)))
