"""Soft Reasoning: Bayesian optimisation of the first answer token's embedding (paper, Section "Methodology").

With an optimiser that ignores rewards it is the control ``random_embedding``, with the same budget, verifier
and final rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from soft_reasoning.checks import whole
from soft_reasoning.rewards.rounds import Rounds, VerifiedMethod
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.search.batch import Proposal
from soft_reasoning.search.optimiser import BayesianOptimiser, Optimiser
from soft_reasoning.space import SearchSpace, SpaceSettings
from soft_reasoning.space.features import PointFeatures
from soft_reasoning.space.propose import Propose
from soft_reasoning.types import Problem, Result, UserError, generator_for


@dataclass(frozen=True, kw_only=True)
class SoftReasoning(SpaceSettings, VerifiedMethod):
    """Searches soft tokens by Bayesian optimisation, with a verifier's rewards.

    The other parts are those of :class:`VerifiedMethod` and :class:`SpaceSettings`.

    Args:
        optimiser: Proposes points.
        candidates: k, completions per round.

    Raises:
        UserError: For a value out of its range.
    """

    optimiser: Optimiser = field(default_factory=BayesianOptimiser)
    candidates: int = 5
    name: str = "soft_reasoning"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("candidates", self.candidates, least=2)
        if self.optimiser.pool is None and not isinstance(self.features, PointFeatures):
            raise UserError(
                "features: expected features=point without a pool of points, got "
                f"{type(self.features).__name__}; use candidate_points=pool with search=bayesian or random"
            )

    @property
    def independent(self) -> bool:
        """Whether the optimiser draws its points at random, as in the control."""
        return getattr(self.optimiser, "independent", False)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        space = yield from self.open(problem, context)
        rounds = Rounds(self, problem, context)
        first = self.optimiser.pool or self.candidates
        stream = generator_for(context.seed, problem.id, "initial")
        points, proposal = self.optimiser.initial(first, space.dim, stream), None
        if self.optimiser.pool is not None:
            space = yield from space.with_pool(points)
            points, _ = yield from self._propose(space, rounds)
        while True:
            summary = None if proposal is None else proposal.summary()
            yield from space.evaluate(points, rounds, tokens=space.describe(points), proposal=summary)
            if (yield from rounds.end("exhausted" if space.exhausted(rounds) else None)):
                break
            points, proposal = yield from self._propose(space, rounds)
        rounds.trace[0].update(space.summary())
        return rounds.result()

    def open(self, problem: Problem, context: Context) -> Steps[SearchSpace]:
        """Return the question's search space."""
        return (yield from SearchSpace.open(problem, context, self, self.reward))

    def _propose(self, space: SearchSpace, rounds: Rounds) -> Steps[tuple[Tensor, Proposal]]:
        """Return the next points (k, d) and the optimiser's proposal."""
        proposal: Proposal = yield Propose(self.optimiser, space.state(rounds, self.candidates))
        return space.proposed(proposal), proposal
