"""Effects of methods that read hidden states or follow gradients, answered one problem at a time.

So memory is bounded by a single problem. A backward pass is counted as two more passes over the same
positions, and a pass of the LM head alone as its share of the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from soft_reasoning.engines.abilities import HiddenStates, LMHead, SoftTokenGradients
from soft_reasoning.scheduling.effects import answers
from soft_reasoning.scheduling.job import Job
from soft_reasoning.types import Effect, Request, Usage

ROLE = "gradient"
"""The role under which the positions are counted."""


@dataclass(frozen=True, eq=False)
class ReadStates(Effect):
    """Reads the last hidden states (n, D) of a prompt."""

    ids: tuple[int, ...]


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
def read_states(jobs: Sequence[Job[ReadStates]], engine: HiddenStates) -> list[Tensor]:
    """Run all prompts, and return the states of each."""
    states = engine.hidden_states([Request(job.effect.ids) for job in jobs])
    for job in jobs:
        job.count(ROLE, Usage.of(len(job.effect.ids)))
    return states


@answers(HeadGradient)
def head_gradient(jobs: Sequence[Job[HeadGradient]], engine: LMHead) -> list[tuple[float, Tensor]]:
    """Compute values and gradients through the LM head."""
    results = []
    for job in jobs:
        results.append(engine.lm_head_gradient(job.effect.states, job.effect.objective))
        passes = 3 * engine.lm_head_share * len(job.effect.states)
        job.count(ROLE, Usage(recomputed_tokens=round(passes)))
    return results


@answers(SoftGradient)
def soft_gradient(
    jobs: Sequence[Job[SoftGradient]], engine: SoftTokenGradients
) -> list[tuple[float, Tensor]]:
    """Compute values and gradients through the whole model."""
    results = []
    for job in jobs:
        request = job.effect.request
        results.append(engine.soft_gradient(request, job.effect.objective))
        length = len(request.prompt_ids) + (0 if request.soft is None else len(request.soft))
        job.count(ROLE, Usage.of(length, recomputed=2 * length))
    return results
