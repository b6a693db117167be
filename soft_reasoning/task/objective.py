"""The mean reward of a task's questions as a BoTorch test problem over the soft tokens that they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeVar

import torch
from torch import Tensor

from soft_reasoning.checks import whole
from soft_reasoning.schedule.effects import next_logits
from soft_reasoning.schedule.method import Context, Generate, Limits, Steps
from soft_reasoning.schedule.scheduler import Run, run_steps
from soft_reasoning.schedule.solutions import read_candidate, solution_request
from soft_reasoning.search.box import BoxProblem
from soft_reasoning.task.learnt import origin
from soft_reasoning.task.space import TaskPoint, TaskSpace, task_request
from soft_reasoning.types import MAX_NEW_TOKENS, Candidate, Problem, Usage, UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Evaluation:
    """A point on a task's questions.

    Attributes:
        u: The point; empty for greedy decoding without soft tokens, and for vectors of no space.
        rewards: The reward of each question.
        tokens: Generated tokens, all questions together.
    """

    u: tuple[float, ...]
    rewards: tuple[float, ...]
    tokens: int

    @property
    def mean(self) -> float:
        """The mean reward."""
        return fmean(self.rewards)

    @property
    def variance(self) -> float:
        """The variance of the mean, that of a binomial share, pulled towards a half so that it is never 0."""
        count = len(self.rewards)
        share = (sum(self.rewards) + 1) / (count + 2)
        return share * (1 - share) / count


class TaskObjective(BoxProblem):
    """f(u): the mean reward of a task's questions, decoded after the soft tokens of a point u in R^d.

    ``objective(X)`` for X (n, d) returns the means (n,), larger is better; :meth:`evaluate` returns the
    reward of each question, too. All points answer the same questions, greedily, so points differ by what
    they change and not by the questions. ``bounds`` are [-sqrt 3, sqrt 3] in each dimension, as for
    ``SoftReasoningObjective``.

    Args:
        problems: The questions, in the order in which they are asked.
        space: The soft tokens.
        context: The engine, prompts, grader and seed.
        max_new_tokens: Tokens per solution.
        negate: Whether to return -f, for optimisers that minimise.
        run: Solves problems with a method. None drives the engine in the caller's thread.

    Attributes:
        dim: d, dimensions of the search.
        evaluations: Every evaluation of points so far, in order.
        usage: Tokens and sequences so far, by role.

    Raises:
        UserError: For no questions, questions without a reference answer, or several answer types.

    Example:
        >>> objective = TaskObjective(problems, TaskSpace(), context)
        >>> objective(torch.randn(5, objective.dim, dtype=torch.float64))
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        space: TaskSpace,
        context: Context,
        *,
        max_new_tokens: int = MAX_NEW_TOKENS,
        negate: bool = False,
        run: Run | None = None,
    ) -> None:
        whole("max_new_tokens", max_new_tokens, least=1)
        self.problems: list[Problem] = list(problems)
        self.space, self.context = space, replace(one_prompt(problems, context), limits=Limits())
        if not problems or len({problem.id for problem in problems}) < len(problems):
            raise UserError(f"questions: expected one or more with different ids, got {len(problems)}")
        if unanswered := [problem.name for problem in problems if problem.gold is None]:
            raise UserError(f"question {unanswered[0]}: expected a correct answer, got none; give gold=")
        self._max_new_tokens, self._solve = max_new_tokens, run
        self.usage: dict[str, Usage] = {}
        self.evaluations: list[Evaluation] = []
        self._vectors = space.bind(context.engine, context.seed)
        super().__init__(space.dim, negate=negate)

    def evaluate_true(self, X: Tensor) -> Tensor:
        """Return the mean rewards, shape (batch,), of points ``X`` (batch x d) on all questions.

        Raises:
            ValueError: If the points have another dimension or are not finite.
        """
        return X.new_tensor([evaluation.mean for evaluation in self.evaluate(X)]).reshape(X.shape[:-1])

    def evaluate(self, X: Tensor) -> list[Evaluation]:
        """Evaluate points ``X`` (batch x d), and add them to ``evaluations``.

        Raises:
            ValueError: If the points have another dimension or are not finite.
        """
        points = self.checked(X)
        asked = zip(points.tolist(), self.ask(list(self._vectors(points))), strict=True)
        evaluations = [replace(evaluation, u=tuple(u)) for u, evaluation in asked]
        self.evaluations += evaluations
        return evaluations

    def ask(self, vectors: Sequence[Tensor | None]) -> list[Evaluation]:
        """Evaluate any soft tokens (m, D), which need be of no space; None is greedy decoding without any."""

        def complete(problem: Problem, context: Context) -> Steps[list[Candidate]]:
            limit = self._max_new_tokens
            greedy = solution_request(problem, context, limit)
            completions = yield Generate(
                [greedy if x is None else task_request(x.float(), problem, context, limit) for x in vectors]
            )
            return [read_candidate(completion, problem, context) for completion in completions]

        grader, evaluations = self.context.grader, list[Evaluation]()
        for candidates in zip(*self._run(complete), strict=True):  # of one point, for each problem
            rewards = [
                float(grader.equal(c.answer, p.gold, p.answer_type))
                for p, c in zip(self.problems, candidates, strict=True)
            ]
            tokens = sum(candidate.generated_tokens for candidate in candidates)
            evaluations.append(Evaluation((), tuple(rewards), tokens))
        return evaluations

    def likely(self, count: int) -> list[int]:
        """Return the ids of the first tokens of largest mean probability over the questions."""

        def look(problem: Problem, context: Context) -> Steps[Tensor]:
            logits = yield from next_logits([context.prompts.solve(problem)], role="anchor")
            return logits[0].double().softmax(-1)

        mean = torch.stack(self._run(look)).mean(0)
        mean[list(self.context.engine.tokenizer.all_special_ids)] = 0
        return mean.topk(count).indices.tolist()

    def vectors(self, u: Sequence[float]) -> Tensor:
        """Return the vectors (m, D) of a point."""
        return self._vectors(self.checked(torch.tensor([tuple(u)], dtype=torch.float64)))[0]

    def point(self, u: Sequence[float]) -> TaskPoint:
        """Return the point ``u`` as ``method=soft_token`` takes it."""
        return TaskPoint(
            vectors=self.vectors(u).tolist(),
            u=tuple(u),
            **origin(self.context, self.problems),
        )

    def _run(self, steps: Callable[[Problem, Context], Steps[T]]) -> list[T]:
        return run_steps(steps, self.problems, self.context, run=self._solve, usage=self.usage)


def one_prompt(problems: Sequence[Problem], context: Context) -> Context:
    """Return the context in which all ``problems`` are solved, since what is learnt fits one prompt.

    Raises:
        UserError: For several answer types, whose prompts differ.
    """
    types = sorted({problem.answer_type for problem in problems})
    if len(types) > 1:
        raise UserError(
            f"questions: expected one answer type, got {', '.join(types)}; learn from each by itself"
        )
    return context.of(problems[0]) if problems else context
