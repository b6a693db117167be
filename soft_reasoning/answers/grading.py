"""Reading, comparing and voting on answers of every type: pure functions, and a grader of them."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from soft_reasoning.answers.boolean import BooleanReader
from soft_reasoning.answers.choice import ChoiceReader
from soft_reasoning.answers.number import NumberReader
from soft_reasoning.answers.reader import WINDOW, Reader, Reading
from soft_reasoning.answers.statements import BOX, prepared, statements
from soft_reasoning.answers.text import CodeReader, JsonReader, LatexReader, OpenReader, TextReader
from soft_reasoning.checks import OptionError, choice, real
from soft_reasoning.types import Problem

READERS: dict[str, Reader] = {
    "number": NumberReader(),
    "boolean": BooleanReader(),
    "choice": ChoiceReader(),
    "latex": LatexReader(),
    "text": TextReader(),
    "open": OpenReader(),
    "json": JsonReader(),
    "code": CodeReader(),
}
ANSWER_TYPES = tuple(READERS)
MODES = ("flexible", "strict")

_STRICT = re.compile(r"(?<![A-Za-z])Answer:[ \t]*([^\n]*)")
_WORD = re.compile(r"\w+")
_THOUSANDS = re.compile(r"[1-9]\d{0,2}\.\d{3}")
_FOREIGN = re.compile(
    r"\b(?:Antwort|Respuesta|Risposta|Resposta|ist|sind|lautet|und|das|insgesamt|el|los|las|que|una|uma|est|les|une"
    r"|che|della|sono|são|het|een|zijn)\b"
)
"""Words of languages in which "1.200" is mostly 1200."""


def extract(text: str, answer_type: str, *, mode: str = "flexible") -> str | None:
    """Return the canonical answer that ``text`` states, or None.

    Args:
        text: the text of a model.
        answer_type: one of ``ANSWER_TYPES``.
        mode: ``strict`` reads the rest of the line after the first ``Answer:`` and nothing else;
            ``flexible`` reads the last statement of any form, else the end of the text (the package's
            docstring has the rules).

    Raises:
        UserError: for an unknown answer type or mode.
    """
    reading = _read(text, answer_type, mode)
    return None if reading is None else reading.answer


def locate(text: str, answer_type: str, *, mode: str = "flexible") -> tuple[int, int] | None:
    """Return ``(start, end)`` of the answer of :func:`extract` in ``text``; None without one.

    The span covers the number, verdict, letter or phrase alone.

    >>> text = "10 / 4 eggs. Answer: 10/4 = $2.50 each"
    >>> text[slice(*locate(text, "number"))]
    '2.50'
    """
    reading = _read(text, answer_type, mode)
    if reading is None or reading.answer is None:
        return None
    return reading.start, reading.end


@lru_cache(maxsize=4096)  # votes and grades compare the same few answers repeatedly
def equal(
    a: str | None, b: str | None, answer_type: str, *, absolute: float = 1e-3, relative: float = 1e-6
) -> bool:
    """Whether two answers are the same; symmetric, reflexive, and False where either is None.

    Numbers agree within ``absolute`` or within ``relative`` times the larger magnitude (either suffices);
    LaTeX by value, by text, or symbolically in a worker process (:mod:`soft_reasoning.answers.algebra`).
    """
    reader = _reader(answer_type)
    if a is None or b is None:
        return False
    return a == b or reader.equal(a, b, absolute, relative)


class AnswerGrader:
    """Base class of graders, which extract, compare and vote on answers."""

    @property
    def name(self) -> str:
        """The name of the extraction in records and reports."""
        raise NotImplementedError

    def supports(self, answer_type: str) -> bool:
        """Whether answers of this type can be read."""
        raise NotImplementedError

    def extract(self, text: str, answer_type: str) -> str | None:
        """The answer that ``text`` gives, or None."""
        raise NotImplementedError

    def locate(self, text: str, answer_type: str) -> tuple[int, int] | None:
        """``(start, end)`` of that answer in ``text``, or None."""
        raise NotImplementedError

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
    """The default grader, with the tolerances of :func:`equal` and the mode of :func:`extract`.

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
                raise OptionError("same", f"expected the dotted name of a function, got {self.same!r} "
                                  f"({error})") from error  # fmt: skip
        if not (self.same is None or callable(self.same)):
            raise OptionError("same", f"expected a function of two answers, got {self.same!r:.40}")

    @property
    def name(self) -> str:
        return self.extraction

    def supports(self, answer_type: str) -> bool:
        return answer_type in ANSWER_TYPES

    def extract(self, text: str, answer_type: str) -> str | None:
        return extract(text, answer_type, mode=self.extraction)

    def locate(self, text: str, answer_type: str) -> tuple[int, int] | None:
        return locate(text, answer_type, mode=self.extraction)

    def equal(self, a: str | None, b: str | None, answer_type: str) -> bool:
        if callable(self.same):
            return a is not None and b is not None and (a == b or bool(self.same(a, b)))
        return equal(a, b, answer_type, absolute=self.absolute, relative=self.relative)


def _reader(answer_type: str) -> Reader:
    choice("answer type", answer_type, ANSWER_TYPES)
    return READERS[answer_type]


def _read(text: str, answer_type: str, mode: str) -> Reading | None:
    reader = _reader(answer_type)
    choice("extraction", mode, MODES)
    if isinstance(reader, OpenReader):  # the whole text, without statements
        return reader.close(text)
    reading = _read_strict(text, reader) if mode == "strict" else _read_flexible(text, answer_type)
    if reading and answer_type == "number" and _THOUSANDS.fullmatch(text, reading.start, reading.end):
        return None if _FOREIGN.search(text) else reading
    return reading


def _read_strict(text: str, reader: Reader) -> Reading | None:
    line = _STRICT.search(text)
    if line is None:
        return None
    start, end = line.start(1), min(line.end(1), line.start(1) + WINDOW)
    statement = text[start:end]
    if boxes := [*BOX.finditer(statement)]:
        start, statement = start + boxes[-1].start("box"), boxes[-1]["box"]
    reading = reader.read(prepared(statement))
    return reading and reading.shifted(start)


@lru_cache(maxsize=1024)  # candidates are often equal, and several parts read each of them
def _read_flexible(text: str, answer_type: str) -> Reading | None:
    """Read the last readable statement, else the end of the text."""
    reader = READERS[answer_type]
    text = prepared(text)

    def has_answer(before: str) -> bool:
        reading = reader.close(before)
        return reading is not None and reading.answer is not None

    stated, answer_end = statements(text, has_answer)
    distant: Reading | None = None
    for kind, _, start, end in reversed(stated):
        statement = text[start:end]
        reading = reader.close(statement) if kind == "correction" else reader.read(statement)
        if reading is None and kind == "sealed":
            return None
        if reading is None or kind == "correction" and reading.answer is None:
            continue
        opens = len(_WORD.findall(statement[: reading.start])) <= 2
        reading = reading.shifted(start)
        if opens or kind not in ("phrase", "hashes"):
            return reading
        distant = distant or (reading if reading.answer else None)
    return distant or reader.close(text[:answer_end])
