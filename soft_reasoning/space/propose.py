"""The effect that requests a question's next points from an optimiser."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from soft_reasoning.engines.base import Engine
from soft_reasoning.scheduling.effects import answers, grouped
from soft_reasoning.scheduling.job import Job
from soft_reasoning.search.batch import Proposal
from soft_reasoning.search.optimiser import Optimiser, SearchState
from soft_reasoning.types import Effect


@dataclass(frozen=True, eq=False)
class Propose(Effect):
    """Requests the next points after the ``state`` of a question; the answer is a :class:`Proposal`."""

    optimiser: Optimiser
    state: SearchState


@answers(Propose, time="optimiser")
def propose(jobs: Sequence[Job[Propose]], engine: Engine) -> list[Proposal]:
    """Call ``optimiser.propose`` once for all questions whose data have the same shape and seed."""

    def stream(job: Job[Propose]) -> Hashable:
        state = job.effect.state
        pool = None if state.features is None else state.features.shape
        return (id(job.effect.optimiser), *state.U.shape, state.k, state.round, state.seed, pool)

    proposals: dict[Job[Propose], Proposal] = {}
    for group in grouped(jobs, stream):
        state = SearchState.join([job.effect.state for job in group])
        proposals.update(zip(group, group[0].effect.optimiser.propose(state), strict=True))
    return [proposals[job] for job in jobs]
