"""The mean reward of a task's questions as a BoTorch test problem over the soft tokens that they share."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

import torch
from botorch.test_functions.base import BaseTestProblem
from torch import Tensor

from soft_reasoning.checks import whole
from soft_reasoning.judge.programs import Programs
from soft_reasoning.schedule.learnt import made_for, question_marks
from soft_reasoning.schedule.method import Context, Limits, Method, Steps
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.schedule.solutions import read_candidate, solution_request
from soft_reasoning.task.space import (
    TaskPoint,
    TaskSpace,
    greedy_anchor,
    task_request,
)
from soft_reasoning.types import (
    MAX_NEW_TOKENS,
    Candidate,
    Generate,
    Problem,
    Request,
    Result,
    Usage,
    UserError,
)

Run = Callable[[Sequence[Problem], Method], Sequence[Result]]
"""Solves problems with a method and returns their results in order."""


@dataclass(frozen=True)
class Evaluation:
    """A point on a task's questions.

    Attributes:
        u: The point; empty for greedy decoding without soft tokens, and for vectors of no space.
        rewards: The reward of each question.
        tokens: Generated tokens, all questions together.
        texts: A short hash of each text, by which points that write the same are known. It leaves out the
            first tokens of a greedy text in whose place a point would have soft tokens.
    """

    u: tuple[float, ...]
    rewards: tuple[float, ...]
    tokens: int
    texts: tuple[str, ...] = ()

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


class TaskObjective(BaseTestProblem):
    """f(u): the mean reward of a task's questions, decoded after the soft tokens of a point u in R^d.

    ``objective(X)`` for X (n, d) returns the means (n,), larger is better; :meth:`observe` returns their
    variances, too. All points answer the same questions, greedily, so points differ by what they change and
    not by the questions. ``bounds`` are [-sqrt 3, sqrt 3] in each dimension, as for
    ``SoftReasoningObjective``.

    Args:
        problems: The questions, in the order in which they are asked.
        space: The soft tokens.
        context: The engine, prompts, grader and seed.
        accepted: The answers of each question that are rewarded, each with an equal share of 1; None is the
            reference answer alone. :func:`program_answers` gives answers where there are no references.
        max_new_tokens: Tokens per solution.
        negate: Whether to return -f, for optimisers that minimise.
        run: Solves problems with a method. None drives the engine in the caller's thread.

    Attributes:
        dim: d, dimensions of the search.
        likely: The ids of the likely first tokens that a mixture mixes.
        evaluations: Every evaluation of points so far, in order.
        usage: Tokens and sequences so far, by role.

    Raises:
        UserError: For no questions, questions without an accepted answer, or several answer types.

    Example:
        >>> objective = TaskObjective(problems, TaskSpace(kind="vector"), context)
        >>> objective(torch.randn(5, objective.dim, dtype=torch.float64))
    """

    _is_minimization_by_default = False
    _check_grad_at_opt = False

    def __init__(
        self,
        problems: Sequence[Problem],
        space: TaskSpace,
        context: Context,
        *,
        accepted: Sequence[Sequence[str]] | None = None,
        max_new_tokens: int = MAX_NEW_TOKENS,
        negate: bool = False,
        run: Run | None = None,
    ) -> None:
        whole("max_new_tokens", max_new_tokens, least=1)
        self.problems: list[Problem] = list(problems)
        self.space, self.context = space, replace(one_prompt(problems, context), limits=Limits())
        self._accepted = _accepted(self.problems, accepted)
        self._max_new_tokens = max_new_tokens
        self._solve = run or self._drive
        self.usage: dict[str, Usage] = {}
        self.evaluations: list[Evaluation] = []
        self.likely: list[int] = self._likely(space.likely_tokens) if space.likely_tokens else []
        self._vectors = space.bind(context.engine, context.seed, self.likely)
        self._anchors: dict[str, Tensor] = self._greedy_anchors() if space.anchored else {}
        self.dim: int = space.dimensions
        self.continuous_inds: list[int] = list(range(self.dim))
        self._bounds = [(-math.sqrt(3), math.sqrt(3))] * self.dim
        super().__init__(negate=negate)

    def evaluate_true(self, X: Tensor) -> Tensor:
        """Return the mean rewards, shape (batch,), of points ``X`` (batch x d) on all questions.

        Raises:
            ValueError: If the points have another dimension or are not finite.
        """
        return self.observe(X)[0].squeeze(-1)

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return self.evaluate_true(X)

    def observe(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means and their variances, (batch x 1) each, as a ``SingleTaskGP`` takes them."""
        evaluations = self.evaluate(X)
        means, variances = ([getattr(e, name) for e in evaluations] for name in ("mean", "variance"))
        shape = (*X.shape[:-1], 1)
        return X.new_tensor(means).reshape(shape), X.new_tensor(variances).reshape(shape)

    def evaluate(self, X: Tensor) -> list[Evaluation]:
        """Evaluate points ``X`` (batch x d), and add them to ``evaluations``.

        Raises:
            ValueError: If the points have another dimension or are not finite.
        """
        points = self._checked(X)
        evaluations = [
            replace(e, u=tuple(u.tolist()))
            for u, e in zip(points, self.ask(list(self._vectors(points))), strict=True)
        ]
        self.evaluations += evaluations
        return evaluations

    def ask(self, vectors: Sequence[Tensor | None]) -> list[Evaluation]:
        """Evaluate any soft tokens (m, D), which need be of no space.

        They are added to the anchors if the space's points are. None is greedy decoding without soft tokens.
        """
        method = _Complete(vectors, self._anchors, self.space.placement, self._max_new_tokens)
        results = self._run(method)
        rewards = [
            [self._reward(candidate, p, answers) for candidate in result.candidates]
            for p, answers, result in zip(self.problems, self._accepted, results, strict=True)
        ]
        return [
            Evaluation(
                (),
                tuple(row[i] for row in rewards),
                sum(result.candidates[i].generated_tokens for result in results),
                tuple(
                    self._hashed(result.candidates[i].token_ids[self.replaced if x is None else 0 :])
                    for result in results
                ),
            )
            for i, x in enumerate(vectors)
        ]

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the reward of a point, as JSON: the space, the questions, the model, the settings."""
        asked = [
            [p.id, p.question, *answers] for p, answers in zip(self.problems, self._accepted, strict=True)
        ]
        return {
            "space": asdict(self.space),
            "questions": hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16],
            "seed": self.context.seed,
            "max_new_tokens": self._max_new_tokens,
            **made_for(self.context),
        }

    @property
    def replaced(self) -> int:
        """Number of first tokens in whose place a point has soft tokens."""
        return self.space.tokens if self.space.placement == "last" else 0

    def vectors(self, u: Sequence[float]) -> Tensor:
        """Return the vectors (m, D) of a point."""
        return self._vectors(self._checked(torch.tensor([tuple(u)], dtype=torch.float64)))[0]

    def point(self, u: Sequence[float]) -> TaskPoint:
        """Return the point ``u`` as ``method=soft_token`` takes it."""
        return TaskPoint(
            vectors=tuple(tuple(row) for row in self.vectors(u).tolist()),
            anchored=self.space.anchored,
            placement=self.space.placement,
            u=tuple(u),
            made_for=made_for(self.context),
            questions=question_marks(self.problems),
        )

    def _reward(self, candidate: Candidate, problem: Problem, accepted: Sequence[str]) -> float:
        equal = self.context.grader.equal
        return sum(equal(candidate.answer, answer, problem.answer_type) for answer in accepted) / len(
            accepted
        )

    def _likely(self, count: int) -> list[int]:
        """The ids of the first tokens of largest mean probability over the questions."""
        engine = self.context.engine
        method = _Looks()
        self._run(method)
        mean = torch.stack([method.probabilities[p.id] for p in self.problems]).mean(0)
        mean[list(engine.tokenizer.all_special_ids)] = 0
        if count > int((mean > 0).sum()):
            raise UserError(f"dim: expected at most the vocabulary's size, got {count}")
        return mean.topk(count).indices.tolist()

    def _greedy_anchors(self) -> dict[str, Tensor]:
        method = _Anchors(self.space.tokens)
        self._run(method)
        return method.anchors

    def _hashed(self, token_ids: Sequence[int]) -> str:
        """A text's hash. Cut texts are compared at one length: a greedy one has lost its first tokens."""
        shown = tuple(token_ids)[: self._max_new_tokens - self.replaced]
        return hashlib.sha256(repr(shown).encode()).hexdigest()[:8]

    def _checked(self, X: Tensor) -> Tensor:
        if X.ndim == 0 or X.shape[-1] != self.dim or not torch.isfinite(X).all():
            raise ValueError(f"expected finite points (batch x {self.dim}), got {tuple(X.shape)}")
        return X.detach().double().cpu().reshape(-1, self.dim)

    def _run(self, method: Method) -> Sequence[Result]:
        results = self._solve(self.problems, method)
        for result in results:
            for role, usage in result.usage.items():
                self.usage[role] = self.usage.get(role, Usage()) + usage
        return results

    def _drive(self, problems: Sequence[Problem], method: Method) -> Sequence[Result]:
        solved = {problem.id: result for problem, result in drive(problems, method, self.context)}
        return [solved[problem.id] for problem in problems]


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


def program_answers(
    problems: Sequence[Problem], context: Context, programs: Programs | None = None, run: Run | None = None
) -> list[tuple[str, ...]]:
    """Return the answers of the programs that the model writes for each question, as rewards without labels.

    A question none of whose programs runs has none, and teaches nothing.
    """
    method = _Written(programs or Programs())
    if run is None:
        for _ in drive(problems, method, context):
            pass
    else:
        run(problems, method)
    return [method.answers[problem.id] for problem in problems]


def _accepted(problems: Sequence[Problem], accepted: Sequence[Sequence[str]] | None) -> list[tuple[str, ...]]:
    if not problems:
        raise UserError("questions: expected at least one, got none")
    if len({problem.id for problem in problems}) < len(problems):
        raise UserError("questions: expected each id once, got one twice")
    if accepted is None:
        accepted = [() if problem.gold is None else (problem.gold,) for problem in problems]
    pairs = list(zip(problems, accepted, strict=True))
    for problem, answers in pairs:
        if not answers:
            raise UserError(
                f"question {problem.name}: expected a correct answer, got none; give gold=, or leave it out"
            )
    return [tuple(answers) for _, answers in pairs]


@dataclass(frozen=True)
class _Complete:
    """Completes a question after each of ``vectors`` (m, D), added to the question's anchor if it has one."""

    vectors: Sequence[Tensor | None]
    anchors: dict[str, Tensor]
    placement: str
    max_new_tokens: int
    name: str = "task"

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        requests = [self._request(x, problem, context) for x in self.vectors]
        completions = yield Generate(requests)
        return Result(None, tuple(read_candidate(completion, problem, context) for completion in completions))

    def _request(self, x: Tensor | None, problem: Problem, context: Context) -> Request:
        if x is None:
            return solution_request(problem, context, self.max_new_tokens)
        soft = x.float() if problem.id not in self.anchors else x.float() + self.anchors[problem.id]
        return task_request(soft, self.placement, problem, context, self.max_new_tokens)


@dataclass(frozen=True)
class _Anchors:
    """Looks up each question's greedy first tokens."""

    count: int
    anchors: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    name: str = "anchors"

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        self.anchors[problem.id] = yield from greedy_anchor(
            context.prompts.solve(problem), self.count, context
        )
        return Result(None, ())


@dataclass(frozen=True)
class _Looks:
    """Reads the probabilities (V,) of each question's first token."""

    probabilities: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    name: str = "looks"

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        prompt = context.prompts.solve(problem)
        [look] = yield Generate([Request(prompt.ids, max_new_tokens=0, next_logits=True, role="anchor")])
        assert look.next_logits is not None
        self.probabilities[problem.id] = look.next_logits.double().softmax(-1)
        return Result(None, ())


@dataclass(frozen=True)
class _Written:
    """Writes programs and keeps the answers of those that ran."""

    programs: Programs
    answers: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    name: str = "programs"

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        written = yield from self.programs.write(problem, context, 0, self.programs.samples, role="verifier")
        self.answers[problem.id] = tuple(p.answer for p in written if p.answer is not None)
        return Result(None, ())
