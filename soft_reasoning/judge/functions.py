"""A user's function as a verifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from soft_reasoning.judge.verifiers import Verdict, Verifier
from soft_reasoning.schedule.context import Context
from soft_reasoning.types import Candidate, Problem, UserError

Score: TypeAlias = Callable[[str, Sequence[Candidate]], Sequence[float | None]]
"""A question and a round's candidates -> a score in [0, 1] for each; None is not judged."""


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


def as_verifier(value: Any) -> Verifier:
    """Return ``value``, an object with ``verify`` or a function, as a verifier.

    Raises:
        UserError: If it is neither.
    """
    expected = (
        "a function of a question and its candidates that returns a score for each, or an object with verify"
    )
    if isinstance(value, type):
        raise UserError(f"verifier: expected {expected}, got the class {value.__name__}; pass an instance")
    if callable(getattr(value, "verify", None)):
        return cast(Verifier, value)
    if callable(value):
        return FunctionVerifier(cast(Score, value))
    raise UserError(f"verifier: expected {expected}, got {value!r:.80}")
