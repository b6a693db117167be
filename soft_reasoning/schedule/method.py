"""What a method is, a generator of effects for one problem, and the context that it reads."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, TypeVar

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.checks import real, whole
from soft_reasoning.engine.base import Engine
from soft_reasoning.prompts import Prompts
from soft_reasoning.types import Candidate, Problem, Request, Result, UserError, seed_for


@dataclass(frozen=True)
class Limits:
    """Bounds of each problem, also within a round; None is no bound.

    Args:
        max_tokens: Maximum number of generated tokens, candidates and verifier together. Requests of one
            effect share the remaining tokens equally.
        max_seconds: Time limit. Problems share the time, so this bound is not reproducible.
    """

    max_tokens: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            whole("max_tokens", self.max_tokens, least=1)
        if self.max_seconds is not None:
            real("max_seconds", self.max_seconds, above=0.0)


@dataclass(frozen=True)
class Context:
    """The values that methods read during a run.

    Attributes:
        engine: For its tokenizer and embeddings; model work goes through yielded effects.
        prompts: Builds prompts.
        grader: Extracts and compares answers.
        seed: The run's seed.
        limits: Bounds of each problem, which the scheduler enforces.
        judges: Contexts of other models that act as judges, by name.
    """

    engine: Engine
    prompts: Prompts
    grader: AnswerGrader
    seed: int
    limits: Limits = Limits()
    judges: Mapping[str, Context] = field(default_factory=dict[str, "Context"])

    def of(self, problem: Problem) -> Context:
        """Return the context in which ``problem`` is solved, whose prompts ask for its type of answer."""
        prompts = self.prompts.of(problem.answer_type)
        if prompts is self.prompts:
            return self
        judges = {name: judge.of(problem) for name, judge in self.judges.items()}
        return replace(self, prompts=prompts, judges=judges)

    def judge(self, name: str | None) -> Context:
        """Return the context of the judge ``name`` under this context's seed; without a name, this one."""
        return self if name is None else replace(self.judges[name], seed=self.seed)

    @property
    def engines(self) -> list[Engine]:
        """The run's engine and those of the judges."""
        return [self.engine, *(judge.engine for judge in self.judges.values())]

    def stream(self, *stage: object) -> int:
        """Return the seed of one stage, such as ``stream(problem.id, "sample", 3)``."""
        return seed_for(self.seed, *stage)


class Effect:
    """A value that a method yields; a function registered by ``effects.answers`` for its type answers it."""


@dataclass(frozen=True)
class Generate(Effect):
    """Complete requests; the answer is a list of :class:`Completion`.

    Attributes:
        requests: The requests.
        engine: The engine of a second model; None uses the run's engine.
    """

    requests: Sequence[Request]
    engine: Engine | None = None

    def __post_init__(self) -> None:
        requests: object = self.requests
        if not isinstance(requests, list | tuple) or not all(isinstance(r, Request) for r in requests):
            raise UserError(f"Generate: expected a list of Requests, got {requests!r:.80}")


@dataclass(frozen=True)
class Round(Effect):
    """A finished round, for observers; the answer says whether the problem's budget ends here.

    The answer is "max_tokens", "max_seconds", or None if the budget allows another round.

    Attributes:
        problem: The problem.
        number: The round's number, from 0.
        candidates: Its candidates.
        trace: The round's entry of the trace.
    """

    problem: Problem
    number: int
    candidates: Sequence[Candidate]
    trace: Mapping[str, object]


T = TypeVar("T")
Steps: TypeAlias = Generator[Effect, Any, T]
"""A generator that yields effects, receives their answers and returns a T."""


class Method(Protocol):
    """Solves one problem; the scheduler batches across problems.

    A method never reads ``problem.gold`` (the verifier ``oracle``, which does, is for analysis only). It
    draws only from ``types.generator_for(context.seed, problem.id, stage)``, and leaves ``Result.usage`` to
    the scheduler.

    A method's ``short`` maps short options such as ``k`` to its fields; a dot leads into a part.
    A method sets ``independent = True`` if its first round has a fixed number of i.i.d. candidates. Only
    then pass@m is estimated.
    """

    @property
    def name(self) -> str:
        """The method's name in tables."""
        ...

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        """Yield effects, receive their answers, and return the result."""
        ...


def check_method(method: object) -> None:
    """Check that ``method`` is an object with a name and ``solve(problem, context)``.

    Raises:
        UserError: If it is not.
    """
    wanted = "method: expected a name, or an object with a name and solve(problem, context)"
    if isinstance(method, type):
        raise UserError(f"{wanted}, got the class {method.__name__}; pass an instance")
    if not isinstance(getattr(method, "name", None), str) or not callable(getattr(method, "solve", None)):
        raise UserError(f"{wanted}, got {method!r:.80}")


def check_result(method: object, result: object) -> Result:
    """Return what ``method`` returned, if it is a result.

    Raises:
        UserError: If it is not.
    """
    wanted = f"method: expected {type(method).__name__}.solve to return a Result"
    if not isinstance(result, Result):
        raise UserError(f"{wanted}, got {result!r:.80}")
    if not isinstance(result.answer, str | None):
        raise UserError(f"{wanted} whose answer is a string or None, got {result.answer!r:.80}; use str()")
    if not all(isinstance(candidate, Candidate) for candidate in result.candidates):
        raise UserError(f"{wanted} whose candidates are Candidates, got {result.candidates!r:.80}")
    return result
