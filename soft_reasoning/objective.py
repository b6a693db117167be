"""The reward of one question as a BoTorch test problem, for any optimiser."""

from __future__ import annotations

import math
from typing import Generic, TypeVar

import torch
from botorch.test_functions.base import BaseTestProblem
from torch import Tensor

from soft_reasoning.api import SoftReasoner
from soft_reasoning.methods.base import Rounds
from soft_reasoning.methods.soft_reasoning import SoftReasoning
from soft_reasoning.rewards.combine import rewards_of
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.types import Candidate, Problem, Result, Usage, UserError

T = TypeVar("T")


class SoftReasoningObjective(BaseTestProblem):
    """f(u): the reward of the answer that follows the soft token x = z + sigma A u / sqrt(d).

    ``objective(X)`` for X (n, d) completes the question from each point, verifies the n candidates together
    as one round, and returns their rewards (n,); larger is better. A round's verdict may depend on its other
    candidates and, for some verifiers, on earlier rounds. ``bounds`` are [-sqrt 3, sqrt 3] in each dimension:
    uniform points of this box have the variance of N(0, I), from which the method draws its first points.
    Points outside the box are evaluated too. No noise is added (``noise_std`` is None). With
    ``decoding=sampled`` a reward is itself a draw; evaluating a point again draws another.

    Args:
        reasoner: An open :class:`~soft_reasoning.SoftReasoner` whose method is ``soft_reasoning``.
        question: The question, in words.
        gold: The reference answer. Only :meth:`correct` and an ``oracle`` verifier read it.

    Attributes:
        dim: d, dimensions of the search, for all soft tokens together.
        usage: Tokens and sequences so far, by role.

    Raises:
        UserError: If the reasoner's method has no search, or the question is invalid or too long.

    Example:
        >>> with SoftReasoner.from_pretrained("demo") as reasoner:
        ...     objective = SoftReasoningObjective(reasoner, "Sam has 8 cards. Sam gets 10. How many ...?")
        ...     rewards = objective(torch.randn(5, objective.dim, dtype=torch.float64))
        ...     print(objective.answer, objective.best.text)
    """

    _is_minimization_by_default = False
    _check_grad_at_opt = False

    def __init__(self, reasoner: SoftReasoner, question: str, gold: str | None = None):
        if not isinstance(reasoner.method, SoftReasoning):
            raise UserError(
                "SoftReasoningObjective: expected a reasoner with method=soft_reasoning, got "
                f"method={reasoner.method.name}"
            )
        self._reasoner, self._method, self._context = reasoner, reasoner.method, reasoner.context
        self._problem = reasoner.problem(question, gold)
        self._rounds = Rounds(self._method, self._problem, self._context)
        self.usage: dict[str, Usage] = {}
        self._box = self._run(self._method.open(self._problem, self._context))
        self.dim: int = self._box.subspace.dim
        self.continuous_inds: list[int] = list(range(self.dim))
        self._bounds = [(-math.sqrt(3), math.sqrt(3))] * self.dim
        super().__init__()

    def evaluate_true(self, X: Tensor) -> Tensor:
        """Return the rewards, shape (batch,), of points ``X`` (batch x d), evaluated in one round.

        Raises:
            ValueError: If the points have another dimension or are not finite.
        """
        points = self._checked(X)
        self._run(self._method.evaluate(self._box, points, self._rounds, self._context))
        rewards = rewards_of(self.candidates[-len(points) :])
        return torch.tensor(rewards, dtype=X.dtype, device=X.device).reshape(X.shape[:-1])

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return self.evaluate_true(X)

    def features(self, X: Tensor) -> Tensor:
        """Return the surrogate's inputs for the points ``X`` (n x d), shape (n, n) float64.

        Any model can use them. Their distances are those of the configured ``features``, scaled to the median
        distance of points of N(0, I). They are comparable only within a call: pass all points of a pool.

        Raises:
            ValueError: If the points have another dimension or are not finite.

        Example:
            >>> pool = torch.randn(64, objective.dim, dtype=torch.float64)
            >>> features = objective.features(pool)
            >>> chosen, y = [0, 1, 2, 3, 4], objective(pool[:5])
            >>> model = SingleTaskGP(features[chosen], y.unsqueeze(-1))
            >>> acquisition = LogExpectedImprovement(model, best_f=y.max())
            >>> row, _ = optimize_acqf_discrete(acquisition, q=1, choices=features)
            >>> best = (features == row).all(-1).nonzero().squeeze()
        """
        pool = self._run(self._method.look(self._box, self._checked(X), self._context))
        return pool.features.to(X.device)

    def _checked(self, X: Tensor) -> Tensor:
        if X.shape[-1] != self.dim or not torch.isfinite(X).all():
            raise ValueError(f"expected finite points (batch x {self.dim}), got {tuple(X.shape)}")
        return X.detach().double().cpu().reshape(-1, self.dim)

    @property
    def candidates(self) -> list[Candidate]:
        """Every candidate so far, in the order of evaluation."""
        return self._rounds.seen

    @property
    def best(self) -> Candidate:
        """The candidate of the highest reward; the earliest wins a tie.

        Raises:
            UserError: Before the first evaluation.
        """
        self._needs_candidates()
        rewards = rewards_of(self.candidates)
        return self.candidates[rewards.index(max(rewards))]

    @property
    def answer(self) -> str | None:
        """The final answer by the method's rule, from all candidates and verdicts so far.

        Raises:
            UserError: Before the first evaluation.
        """
        self._needs_candidates()
        return self._rounds.answer()

    def correct(self, answer: str | None) -> bool:
        """Whether ``answer`` equals the reference answer.

        Raises:
            UserError: If no reference answer was given.
        """
        if self._problem.gold is None:
            raise UserError(
                "correct: expected a reference answer, got none; give SoftReasoningObjective gold="
            )
        return bool(self._context.grader.correct(answer, self._problem))

    def _needs_candidates(self) -> None:
        if not self.candidates:
            raise UserError("expected evaluated points, got none; call the objective first")

    def _run(self, steps: Steps[T]) -> T:
        """Return the result of ``steps`` after the engine has answered all its effects."""
        method = _Steps(steps)
        for role, usage in self._reasoner.run_method(self._problem, method).usage.items():
            self.usage[role] = self.usage.get(role, Usage()) + usage
        return method.value


class _Steps(Generic[T]):
    """A method that runs another generator and stores its return value."""

    name = "objective"
    value: T

    def __init__(self, steps: Steps[T]):
        self._steps = steps

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        self.value = yield from self._steps
        return Result(None, ())
