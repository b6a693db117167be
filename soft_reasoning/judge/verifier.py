"""Verifiers judge a round's candidates (paper, "Optimisation Objective").

A verifier returns a :class:`Verdict` on a round, or is a generator like a method, which yields effects
first. It does not read the problem's gold answer; only ``oracle`` does. Candidates without a parsed answer
are not shown and score 0. If no candidate can be shown, no model is called and the verdict holds no answers.
Only ``fresh``, which never shows candidates, is called anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, cast

from soft_reasoning.checks import real
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.types import Candidate, Problem, UserError

Score: TypeAlias = Callable[[str, list[Candidate]], Sequence[float | None]]
"""A question and a round's candidates -> a score in [0, 1] for each; None is not judged."""


@dataclass(frozen=True)
class Verdict:
    """A verifier's judgement of a round.

    Attributes:
        scores: A score in [0, 1] per candidate; None for a candidate that was not judged.
        answers: The answers of the solutions that the verifier wrote, one per sample.
        texts: The texts that the verifier wrote.
        weights: Weight in [0, 1] of each answer; by default 1.
        agreement: The scores before confidence; by default the scores.
        prompts: The text of each prompt, one per text.
        computed: Whether the answers are values of programs, which no grader reads from the texts.
    """

    scores: tuple[float | None, ...]
    answers: tuple[str | None, ...] = ()
    texts: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    agreement: tuple[float | None, ...] = ()
    prompts: tuple[str, ...] = ()
    computed: bool = False

    def __post_init__(self) -> None:
        if not self.agreement:
            object.__setattr__(self, "agreement", self.scores)
        if not self.weights:
            object.__setattr__(self, "weights", (1.0,) * len(self.answers))


class Verifier(Protocol):
    """Scores the candidates of a round."""

    @property
    def name(self) -> str:
        """Its name, for messages."""
        ...

    def verify(
        self, problem: Problem, candidates: list[Candidate], context: Context, earlier: list[Verdict]
    ) -> Verdict | Steps[Verdict]:
        """Judge a round's ``candidates``; ``earlier`` holds the verdicts of the rounds before.

        A verifier that asks the model is a generator: it yields effects and returns the verdict.
        """
        ...


def verify(
    verifier: Verifier,
    problem: Problem,
    candidates: Sequence[Candidate],
    context: Context,
    earlier: Sequence[Verdict],
) -> Steps[Verdict]:
    """Return the verdict of ``verifier``, whether it returns the verdict or yields effects first.

    Raises:
        UserError: If it returns anything else.
    """
    verdict: object = verifier.verify(problem, [*candidates], context, [*earlier])
    if isinstance(verdict, Generator):
        verdict = yield from cast(Steps[object], verdict)
    name = f"verifier={getattr(verifier, 'name', type(verifier).__name__)}"
    if not isinstance(verdict, Verdict):
        raise UserError(
            f"{name}: expected verify to return a Verdict, or to yield effects and return one, got "
            f"{verdict!r:.80}"
        )
    scores, agreement = (
        _scores(values, len(candidates), name) for values in (verdict.scores, verdict.agreement)
    )
    return replace(verdict, scores=scores, agreement=agreement)


def _scores(values: object, count: int, name: str) -> tuple[float | None, ...]:
    """Return ``values`` as ``count`` scores in [0, 1] or None."""
    scores: list[object] = list(values) if isinstance(values, Iterable) else []
    if len(scores) != count:
        raise UserError(f"{name}: expected {count} scores, one for each candidate, got {values!r:.80}")
    return tuple(None if score is None else _score(score, f"{name}: score") for score in scores)


def _score(value: object, name: str) -> float:
    """Return a number, or a scalar of numpy or torch, as a float in [0, 1]."""
    value = getattr(value, "item", lambda: value)()
    return real(name, float(value) if isinstance(value, bool) else value, least=0.0, most=1.0)


@dataclass(frozen=True)
class NoVerifier:
    """Judges nothing, so rewards are coherence only, and only candidates vote."""

    name: str = "none"

    def verify(
        self, problem: Problem, candidates: Sequence[Candidate], context: Context, earlier: Sequence[Verdict]
    ) -> Verdict:
        return Verdict((None,) * len(candidates))


@dataclass(frozen=True)
class Oracle:
    """Compares with the gold answer, for analysis only: an upper bound for every verifier."""

    name: str = "oracle"

    def verify(
        self, problem: Problem, candidates: Sequence[Candidate], context: Context, earlier: Sequence[Verdict]
    ) -> Verdict:
        if problem.gold is None:
            raise UserError(
                "verifier=oracle: expected a problem with a gold answer, got none; use another verifier"
            )
        return Verdict(tuple(float(bool(context.grader.correct(c.answer, problem))) for c in candidates))


@dataclass(frozen=True)
class FunctionVerifier:
    """Scores candidates by a function, which may run unit tests, a judge or a reward model.

    The thread that drives the engine calls the function once per round of a question.

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
        """Judge ``candidates``; :func:`verify` checks what the function returns."""
        values: object = self.function(problem.question, list(candidates))
        return Verdict(cast(tuple[float, ...], tuple(values) if isinstance(values, Iterable) else values))


def as_verifier(value: object) -> Verifier:
    """Return ``value``, an object with ``verify`` or a function, as a verifier.

    Raises:
        UserError: If it is neither.
    """
    if callable(getattr(value, "verify", None)) and not isinstance(value, type):
        return cast(Verifier, value)
    if callable(value) and not isinstance(value, type):
        return FunctionVerifier(cast(Score, value))
    got = f"the class {value.__name__}; pass an instance" if isinstance(value, type) else f"{value!r:.80}"
    raise UserError(
        "verifier: expected a function of a question and its candidates that returns a score for each, or an "
        f"object with verify, got {got}"
    )
