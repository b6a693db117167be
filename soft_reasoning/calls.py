"""One call of ``solve``: what it is solved with, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeAlias
from weakref import ref

from omegaconf import DictConfig

from soft_reasoning.configuration.build import build_method, check_lengths, check_unseen, check_wording
from soft_reasoning.configuration.options import Options
from soft_reasoning.context import Context
from soft_reasoning.engines.abilities import check_abilities
from soft_reasoning.methods.base import Method
from soft_reasoning.methods.cot import ChainOfThought
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.votes import votes_of
from soft_reasoning.solution import Solution
from soft_reasoning.types import Candidate, Problem, Result, Round
from soft_reasoning.worker import Call, Update

OnRound: TypeAlias = Callable[[Round], None]
Greedy: TypeAlias = Callable[[], Candidate | None]


@dataclass(frozen=True)
class Parts:
    """What a call is solved with."""

    config: DictConfig
    method: Method
    context: Context


def call_of(
    problems: Sequence[Problem], method: Method, context: Context, send: Callable[[Update], None]
) -> Call:
    """Return a call of the worker; what cannot be solved is refused before any model work."""

    def check() -> None:
        check_abilities(method, context.engine)
        check_wording(method, context)
        check_lengths(list(problems), context)
        check_unseen(list(problems), method)

    return Call(problems, method, context, check, send)


def method_of(options: Options, config: DictConfig) -> Method:
    """Return the method that ``options`` name, or the object that they hold."""
    return build_method(config) if isinstance(options.method, str | None) else options.method


class Solves(Protocol):
    """What a solution asks for its greedy completion: a ``SoftReasoner``."""

    @property
    def closed(self) -> bool: ...

    def run_method(self, problem: Problem, method: Method) -> Result: ...


def greedy_of(solver: ref[Solves], problem: Problem, *, config: DictConfig) -> Greedy:
    """Return what decodes ``problem`` greedily, once; None once ``solver`` is closed or gone."""
    method = ChainOfThought(config.max_new_tokens)

    @cache
    def solved() -> Candidate:
        open_one = solver()
        assert open_one is not None
        return open_one.run_method(problem, method).candidates[0]

    def greedy() -> Candidate | None:
        open_one = solver()
        return None if open_one is None or open_one.closed else solved()

    return greedy


class Found:
    """The results of a call as they come in."""

    def __init__(
        self, call: Call, parts: Parts, on_round: OnRound | None, greedy_of: Callable[[Problem], Greedy]
    ) -> None:
        self.results: dict[str, Result] = {}
        self.tokens: int = 0
        self._call, self._parts, self._on_round, self._greedy_of = call, parts, on_round, greedy_of

    @property
    def complete(self) -> bool:
        """Whether every problem of the call has its result."""
        return len(self.results) == len(self._call.problems)

    def take(self, update: Update) -> None:
        """Add a result, pass a round on, or raise an error."""
        problem, outcome = update
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, Round):
            if self._on_round is not None:
                self._on_round(outcome)
        elif problem is not None:
            self.results[problem.id] = outcome
            self.tokens += sum(usage.generated_tokens for usage in outcome.usage.values())

    def solutions(self, problems: Sequence[Problem]) -> list[Solution]:
        """The results of ``problems``, with their stories."""
        made = {one.id: self._solution(one, self.results[one.id]) for one in self._call.problems}
        return [made[one.id] for one in problems]

    def _solution(self, problem: Problem, result: Result) -> Solution:
        method, grader = self._parts.method, self._parts.context.grader
        final = getattr(method, "final", None)
        final = final if isinstance(final, FinalAnswer) else None
        votes = votes_of(result.candidates, result.trace, final, grader, problem.answer_type)
        return Solution(
            result.answer, result.candidates, result.trace, result.usage, result.prompt,
            question=problem.question, method=method.name, rule=None if final is None else final.rule,
            votes=tuple(votes), greedy_candidate=self._greedy_of(problem),
        )  # fmt: skip
