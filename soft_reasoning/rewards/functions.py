"""A user's functions as parts of a method: verifier, reward, final answer and stopping rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from soft_reasoning.checks import real
from soft_reasoning.rewards.combine import Reward
from soft_reasoning.rewards.history import SearchHistory
from soft_reasoning.rewards.verifiers import Verdict
from soft_reasoning.scheduling.context import Context
from soft_reasoning.types import Candidate, Problem, UserError

Score: TypeAlias = Callable[[str, Sequence[Candidate]], Sequence[float | None]]
"""A question and a round's candidates -> a score in [0, 1] for each; None is not judged."""

Weigh: TypeAlias = Callable[[float | None, float], float]
"""A candidate's score, None without a verifier, and its coherence -> its reward; larger is better."""

Final: TypeAlias = Callable[[Sequence[Candidate]], str | None]
"""All candidates of a question -> the answer, or None."""

Stop: TypeAlias = Callable[[Sequence[Sequence[float]]], bool]
"""The rewards of every round so far -> whether the search has converged."""


@dataclass(frozen=True)
class FunctionVerifier:
    """Scores candidates by a function: unit tests, a judge, a reward model.

    The function is called in the thread that drives the engine, once per round of a question.

    Example:
        >>> def shortest(question, candidates):
        ...     return [1 / (1 + len(candidate.text)) for candidate in candidates]
        >>> SoftReasoner.from_pretrained("demo", verifier=shortest)
    """

    function: Score
    name: str = "function"

    def verify(
        self, problem: Problem, candidates: Sequence[Candidate], context: Context, earlier: Sequence[Verdict]
    ) -> Verdict:
        """Judge ``candidates``.

        Raises:
            UserError: Unless the function returns a score or None for each candidate.
        """
        values = self.function(problem.question, list(candidates))
        try:
            scores = list(values)
        except TypeError:
            scores = []
        if len(scores) != len(candidates):
            raise UserError(
                f"verifier: expected {len(candidates)} scores, one for each candidate, got {values!r:.80}"
            )
        return Verdict(tuple(scores))


@dataclass(frozen=True)
class FunctionReward(Reward):
    """Rewards a candidate by a function of its score and coherence."""

    function: Weigh = field(kw_only=True)

    def __call__(self, verified: float | None, coherence: float) -> float:
        return real("reward", self.function(verified, coherence))


@dataclass(frozen=True)
class FunctionFinal:
    """Chooses the final answer by a function of all candidates."""

    function: Final
    rule: str = "function"

    def choose(self, history: SearchHistory) -> str | None:
        """Return the function's answer."""
        answer = self.function(history.candidates)
        if answer is not None and not isinstance(answer, str):
            raise UserError(f"final: expected an answer as text or None, got {answer!r:.80}; use str()")
        return answer


@dataclass(frozen=True)
class FunctionStopping:
    """Ends the rounds when a function returns True, or after the first and ``rounds`` more."""

    function: Stop
    rounds: int

    def reason(self, rewards_by_round: Sequence[Sequence[float]], **_: object) -> str | None:
        """Return why to stop, or None to continue."""
        if self.function(rewards_by_round):
            return "converged"
        return "rounds" if len(rewards_by_round) > self.rounds else None


KINDS: dict[str, tuple[str, Callable[..., Any], str]] = {
    "verifier": (
        "verify",
        FunctionVerifier,
        "a function of a question and its candidates that returns a score for each, or an object with verify",
    ),
    "reward": (
        "coherence_of",
        lambda function: FunctionReward(function=function),
        "a function of a candidate's score and coherence, or a Reward",
    ),
    "final": (
        "choose",
        FunctionFinal,
        "a function of the candidates that returns an answer, or an object with choose",
    ),
    "stopping": (
        "reason",
        FunctionStopping,
        "a function of the rewards of every round, or an object with reason",
    ),
}
"""For each part: the method of its objects, the wrapper of a function, and the expected value in errors."""


def as_part(name: str, value: Any, *options: Any) -> Any:
    """Return ``value`` as the part ``name`` of :data:`KINDS`; a function is wrapped, with ``options``.

    Raises:
        UserError: If it is neither such a part nor a function.
    """
    method, wrap, expected = KINDS[name]
    if isinstance(value, type):
        raise UserError(f"{name}: expected {expected}, got the class {value.__name__}; pass an instance")
    if callable(getattr(value, method, None)):
        return value
    if callable(value):
        return wrap(value, *options)
    raise UserError(f"{name}: expected {expected}, got {value!r:.80}")
