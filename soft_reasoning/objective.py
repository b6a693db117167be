"""The reward of one question as a BoTorch test problem, for any optimiser."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from soft_reasoning.checks import shortened
from soft_reasoning.judge.reward import KINDS, Reward, rewards_of
from soft_reasoning.judge.verifier import NoVerifier
from soft_reasoning.method.rounds import Rounds
from soft_reasoning.method.soft_reasoning import SearchSpace, SoftReasoning
from soft_reasoning.schedule.method import Context, Limits, Steps
from soft_reasoning.schedule.scheduler import Run, run_steps
from soft_reasoning.search.box import BoxProblem
from soft_reasoning.types import Candidate, Problem, Usage, UserError

T = TypeVar("T")


class SoftReasoningObjective(BoxProblem):
    """f(u): the reward of the answer that follows the soft token x of a point u in R^d.

    The method's embedding maps points to soft tokens:

    - random projection (``embedding=gaussian``, the paper): x = z + sigma A u / sqrt(d), for the anchor z and
      a matrix A (D, d) of N(0, 1) entries;
    - token simplex (``embedding=token_simplex``, the default): x = sum_i softmax(tau u)_i e_i, for the
      embeddings e_1, ..., e_d of the likeliest first tokens.

    ``objective(X)`` for X (n, d) completes the question from each point, verifies the n candidates together
    as one round, and returns their rewards (n,); larger is better. A round's verdict may depend on its other
    candidates and, for some verifiers, on earlier rounds. ``bounds`` are [-sqrt 3, sqrt 3] in each dimension.
    Points outside this box are evaluated, too. With ``decoding=sampled``, the default, a point may get
    another reward each time. With ``decoding=greedy`` the reward is a function of the point.

    ``SoftReasoner.objective`` creates an objective. The second example needs no reasoner and no
    configuration.

    Args:
        problem: The question. Only :meth:`correct` and an ``oracle`` verifier read its reference answer.
        method: The search space, the verifier, the reward and the final rule. Its optimiser and stopping rule
            are not used.
        context: The engine, prompts, grader and seed.
        negate: Whether to return -f, for optimisers that minimise.
        noise_std: Standard deviation of noise that is added to each reward, as in BoTorch's test problems.
        run: Solves problems with a method. None drives the engine in the caller's thread; no other thread may
            then use the engine.

    Attributes:
        dim: d, dimensions of the search, for all soft tokens together.
        space: The question's :class:`~soft_reasoning.method.soft_reasoning.SearchSpace`.
        usage: Tokens and sequences so far, by role.

    Raises:
        UserError: If the method has no search, or the question is invalid or too long.

    Example:
        >>> with SoftReasoner.from_pretrained("demo", preset="paper") as reasoner:
        ...     objective = reasoner.objective("Sam has 8 cards. Sam gets 10. How many ...?")
        ...     rewards = objective(torch.randn(5, objective.dim, dtype=torch.float64))
        ...     print(objective.answer, objective.best.text)

        >>> engine = HuggingFaceEngine.from_loaded(model, tokenizer)
        >>> prompts = Prompts(tokenizer, Wording(ask="{question}"))
        >>> method = SoftReasoning(embedding=GaussianEmbedding(dim=50), verifier=NoVerifier())
        >>> context = Context(engine, prompts, Grader(), seed=0)
        >>> objective = SoftReasoningObjective(Problem("1", "Sam has ...?"), method, context)
    """

    def __init__(
        self,
        problem: Problem,
        method: SoftReasoning,
        context: Context,
        *,
        negate: bool = False,
        noise_std: float | None = None,
        run: Run | None = None,
    ) -> None:
        if not isinstance(cast(Any, method), SoftReasoning):
            raise UserError(
                "objective: expected a method that searches (method=soft_reasoning), got "
                f"method={getattr(method, 'name', method)}"
            )
        self._problem, self._context = problem, replace(context, limits=Limits())
        self._method, self._solve = method, run
        self._rounds = Rounds(method, problem, self._context)
        self.usage: dict[str, Usage] = {}
        self.space: SearchSpace = self._run(SearchSpace.open(problem, self._context, method))
        super().__init__(self.space.dim, negate=negate, noise_std=noise_std)

    def evaluate_true(self, X: Tensor) -> Tensor:
        """Return the rewards, shape (batch,), of points ``X`` (batch x d), evaluated in one round.

        An empty batch does not count as a round. As in BoTorch's test problems, ``negate`` does not apply
        here.

        Raises:
            ValueError: If the points have another dimension, are no floats, or are not finite.
        """
        points = self.checked(X)
        if not len(points):
            return X.new_zeros(X.shape[:-1])
        self._run(self.space.evaluate(points, self._rounds))
        rewards = rewards_of(self.candidates[-len(points) :])
        return torch.tensor(rewards, dtype=X.dtype, device=X.device).reshape(X.shape[:-1])

    def extra_repr(self) -> str:
        return f"{shortened(self._problem.question)!r}, {super().extra_repr()}"

    @property
    def optimal_value(self) -> float:
        """The largest reward that an answer can have, minus that with ``negate``; no point need reach it."""
        reward, verifier = self._method.reward, self._method.active_verifier
        if type(reward) is not Reward:
            raise NotImplementedError(f"the largest value of {type(reward).__name__} is not known")
        most = reward(float(not isinstance(verifier, NoVerifier)), float(reward.coherence == KINDS[0]))
        return -most if self.negate else most

    @property
    def candidates(self) -> list[Candidate]:
        """Every candidate so far, in the order of evaluation."""
        return self._rounds.candidates

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
            raise UserError("correct: expected a reference answer, got none; give the objective gold=")
        return bool(self._context.grader.correct(answer, self._problem))

    def _needs_candidates(self) -> None:
        if not self.candidates:
            raise UserError("expected evaluated points, got none; call the objective first")

    def _run(self, steps: Steps[T]) -> T:
        """Return the result of ``steps`` after the engine has answered all its effects."""
        problems, context = [self._problem], self._context
        [returned] = run_steps(lambda _, __: steps, problems, context, run=self._solve, usage=self.usage)
        return returned
