"""Soft Reasoning: Bayesian optimisation of the first answer token's embedding (paper, Section "Methodology").

With an optimiser that ignores rewards it is the control ``random_embedding``, with the same budget, verifier
and final rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from soft_reasoning.checks import whole
from soft_reasoning.method.rounds import Rounds, VerifiedMethod
from soft_reasoning.method.search_space import Propose, SearchSpace, SpaceSettings
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.search.optimiser import BayesianOptimiser, Optimiser
from soft_reasoning.search.points import Proposal
from soft_reasoning.types import Problem, Result, generator_for


@dataclass(frozen=True, kw_only=True)
class SoftReasoning(SpaceSettings, VerifiedMethod):
    """Searches soft tokens by Bayesian optimisation, with a verifier's rewards.

    The other parts are those of :class:`VerifiedMethod` and :class:`SpaceSettings`.

    Args:
        optimiser: Proposes points.
        k: Completions per round.

    Raises:
        UserError: For a value out of its range.
    """

    optimiser: Optimiser = field(default_factory=BayesianOptimiser)
    k: int = 5
    name: str = "soft_reasoning"
    short: ClassVar[Mapping[str, str]] = {
        "rounds": "stopping.rounds",
        "temperature": "decoding.temperature",
        "acquisition": "optimiser.acquisition",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("k", self.k, least=2)

    @property
    def independent(self) -> bool:
        """Whether the optimiser draws its points at random, as in the control."""
        return getattr(self.optimiser, "independent", False)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        space = yield from self.open(problem, context)
        rounds = Rounds(self, problem, context)
        stream = generator_for(context.seed, problem.id, "initial")
        points, summary = self.optimiser.initial(self.k, space.dim, stream), None
        while True:
            yield from space.evaluate(points, rounds, tokens=space.describe(points), proposal=summary)
            if (yield from rounds.end()):
                break
            proposal: Proposal = yield Propose(self.optimiser, space.state(rounds, self.k))
            points, summary = proposal.points, proposal.summary()
        rounds.trace[0]["anchor"] = space.anchor
        return rounds.result()

    def open(self, problem: Problem, context: Context) -> Steps[SearchSpace]:
        """Return the question's search space."""
        return (yield from SearchSpace.open(problem, context, self, self.reward))
