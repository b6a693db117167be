"""Comparing and voting on answers of every type, and the default grader."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from soft_reasoning.answers import latex, number, text
from soft_reasoning.answers.reading import ANSWER_TYPES, MODES, extract, locate
from soft_reasoning.checks import OptionError, choice, real
from soft_reasoning.types import Problem, UserError


@lru_cache(maxsize=4096)  # votes and grades compare the same few answers repeatedly
def equal(
    a: str | None, b: str | None, answer_type: str, *, absolute: float = 1e-3, relative: float = 1e-6
) -> bool:
    """Whether two answers are the same; symmetric, reflexive, and False where either is None.

    Numbers, also in JSON, agree within ``absolute`` or within ``relative`` times the larger magnitude (either
    suffices); formulas as Math-Verify says (``latex``); code as its syntax tree; words apart from case. Two
    open answers that are numbers or JSON agree as these do.
    """
    choice("answer type", answer_type, ANSWER_TYPES)
    if a is None or b is None or a == b:
        return a is not None and a == b
    if answer_type == "number":
        return number.equal(a, b, absolute, relative)
    if answer_type == "latex":
        return latex.equal(a, b)
    if answer_type == "open" and number.value_of(a) is not None:
        return number.equal(a, b, absolute, relative)
    if answer_type == "open":
        a, b = text.unfenced(a), text.unfenced(b)
    if answer_type == "json" or answer_type == "open" and a[:1] in ("{", "["):
        return text.same_json(a, b, absolute, relative)
    form = {"code": text.code_tree, "open": str.split}.get(answer_type, text.folded)
    return form(a) == form(b)


class AnswerGrader:
    """Base class of graders, which extract, compare and vote on answers."""

    types: ClassVar[tuple[str, ...]] = ANSWER_TYPES
    """The types of answers that can be read."""

    @property
    def name(self) -> str:
        """The name of the extraction in records and reports."""
        raise NotImplementedError

    def supports(self, answer_type: str) -> bool:
        """Whether answers of this type can be read."""
        return answer_type in self.types

    def check(self, answer_type: str) -> None:
        """Refuse answers that cannot be read."""
        if not self.supports(answer_type):
            raise UserError(
                f"grader={self.name}: expected answers of type {' or '.join(self.types)}, got "
                f"{answer_type}; use grader=default"
            )

    def extract(self, text: str, answer_type: str, question: str = "", *, cut: bool = False) -> str | None:
        """The answer that ``text`` gives to ``question``, or None.

        ``cut`` says that a limit ended the text, whose last sentence may be unfinished.
        """
        raise NotImplementedError

    def locate(self, text: str, answer_type: str, question: str = "") -> tuple[int, int] | None:
        """``(start, end)`` of that answer in ``text``, or None."""
        raise NotImplementedError

    def of_value(self, answer: str, answer_type: str) -> str:
        """The canonical answer of a computed value in the form that :meth:`equal` compares."""
        return answer

    def equal(self, a: str | None, b: str | None, answer_type: str) -> bool:
        """Whether two answers are the same; False where either is None."""
        raise NotImplementedError

    def vote(
        self, answers: Sequence[str | None], answer_type: str, weights: Sequence[float] | None = None
    ) -> str | None:
        """Return the answer of the largest total weight (each 1 by default); the earliest wins a tie.

        An answer joins the first group whose earliest member it equals. None is not counted.

        Raises:
            ValueError: If ``weights`` and ``answers`` differ in length.
        """
        weights = [1.0] * len(answers) if weights is None else weights
        if len(weights) != len(answers):
            raise ValueError(f"expected {len(answers)} weights, one per answer, got {len(weights)}")
        totals: dict[str, float] = {}
        for answer, weight in zip(answers, weights, strict=True):
            if answer is None:
                continue
            group = next((known for known in totals if self.equal(known, answer, answer_type)), answer)
            totals[group] = totals.get(group, 0.0) + weight
        return max(totals, key=totals.__getitem__) if totals else None

    def correct(self, answer: str | None, problem: Problem) -> bool | None:
        """Whether ``answer`` is the problem's; None where the problem has no gold answer."""
        return None if problem.gold is None else self.equal(answer, problem.gold, problem.answer_type)


@dataclass(frozen=True)
class Grader(AnswerGrader):
    """The default grader, with the tolerances of :func:`equal` and the mode of ``reading.extract``.

    The public code's tolerances are ``Grader(absolute=0.01, relative=0)``. ``same``, a function of two
    answers or its dotted name, replaces the comparison.
    """

    absolute: float = 1e-3
    relative: float = 1e-6
    extraction: str = "flexible"
    same: Callable[[str, str], bool] | str | None = None

    def __post_init__(self) -> None:
        choice("extraction", self.extraction, MODES)
        real("absolute", self.absolute, least=0.0, fix="try 1e-3")
        real("relative", self.relative, least=0.0, fix="try 1e-6")
        if isinstance(self.same, str):
            try:
                object.__setattr__(self, "same", pkgutil.resolve_name(self.same))
            except (ImportError, AttributeError, ValueError) as error:
                raise OptionError(
                    "same", f"expected the dotted name of a function, got {self.same!r} ({error})"
                ) from error
        if not (self.same is None or callable(self.same)):
            raise OptionError("same", f"expected a function of two answers, got {self.same!r:.40}")

    @property
    def name(self) -> str:
        return self.extraction

    def extract(self, text: str, answer_type: str, question: str = "", *, cut: bool = False) -> str | None:
        return extract(text, answer_type, mode=self.extraction, question=question, cut=cut)

    def locate(self, text: str, answer_type: str, question: str = "") -> tuple[int, int] | None:
        return locate(text, answer_type, mode=self.extraction, question=question)

    def equal(self, a: str | None, b: str | None, answer_type: str) -> bool:
        if callable(self.same):
            return a is not None and b is not None and (a == b or bool(self.same(a, b)))
        return equal(a, b, answer_type, absolute=self.absolute, relative=self.relative)
