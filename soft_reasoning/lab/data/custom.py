"""Adapters for any data set, by the names of its columns."""

from __future__ import annotations

import logging
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import choice as one_of
from soft_reasoning.lab.data import fields
from soft_reasoning.lab.data.sources import Row, located
from soft_reasoning.prompts import Exemplar
from soft_reasoning.types import Problem, UserError

log: logging.Logger = logging.getLogger(__name__)

_LETTERS = string.ascii_uppercase
_CHOICES = "choices"
"""The field of choices, if no other is named."""


NAMES: dict[str, Callable[[Sequence[str], Sequence[str]], Sequence[str]]] = {
    "labels": lambda texts, labels: labels,
    "letters": lambda texts, labels: _LETTERS[: len(texts) or 26],
    "texts": lambda texts, labels: texts,
    "from_0": lambda texts, labels: [str(i) for i in range(len(texts))],
    "from_1": lambda texts, labels: [str(i) for i in range(1, len(texts) + 1)],
}
"""How gold answers may name a choice: the names of a row's choices, by their texts and labels."""


@dataclass(frozen=True)
class Columns:
    """An adapter: the columns of the question, the gold answer and, optionally, an id and the choices.

    A field ``answer_type`` of a row is that row's type of answer.

    ``choices`` is a list of texts, or a mapping with the lists ``text`` and ``label``; they are listed under
    the question as (A), (B), .... By default it is the field of that name, where a file's rows of type choice
    have one. ``answer=None`` loads questions without gold answers.

    Gold answers name a choice in one of the ways of ``NAMES``: ``answer_as``, or the first in which every row
    of the file names one (:meth:`over`).
    """

    question: str
    answer: str | None
    id: str | None = None
    choices: str | None = None
    answer_type: str = "number"
    name: str = "custom"
    answer_as: str | None = None

    def __post_init__(self) -> None:
        if self.answer_as is not None:
            one_of("answer_as", self.answer_as, [*NAMES])

    def over(self, rows: Sequence[Row]) -> Self:
        """Return this adapter for a file's ``rows``, over all of which the naming of choices is decided.

        Raises:
            UserError: Where a row names no choice in a way that fits the rows before it.
        """
        if self.choices is None and any(self._lists_choices(row.doc) for row in rows):
            return replace(self, choices=_CHOICES).over(rows)
        if self.choices is not None and not any(self.choices in row.doc for row in rows):
            for row in rows[:1]:
                with located(row):
                    self._require(row.doc, "choices")
        if self.answer_as or self.answer is None or self.choices is None:
            return self
        choosing, ways = list[Row](), [*NAMES]
        for row in rows:
            with located(row):
                if self.type_of(row.doc) == "choice":
                    choosing.append(row)
        if not choosing:
            return self
        for row in choosing:
            with located(row):
                earlier, ways = ways, [way for way in self._ways(row.doc, self.answer) if way in ways]
                if not ways:
                    raise UserError(
                        f"expected an answer that names a choice as before ({' or '.join(earlier)}), got "
                        f"{fields.text(row.doc, self.answer)[:60]!r}; see dataset.row.answer_as"
                    )
        others = f"; {', '.join(ways[1:])} would fit, too" if ways[1:] else ""
        log.info("%s: the answers name choices as dataset.row.answer_as=%s%s", self.name, ways[0], others)
        return replace(self, answer_as=ways[0])

    def _lists_choices(self, row: Mapping[str, object]) -> bool:
        kind = row.get("answer_type") or self.answer_type
        return kind == "choice" and isinstance(row.get(_CHOICES), list | Mapping)

    def type_of(self, row: Mapping[str, object]) -> str:
        """Return the type of a row's answer."""
        return one_of("answer_type", str(row.get("answer_type") or self.answer_type), ANSWER_TYPES)

    def _ways(self, row: Mapping[str, object], column: str) -> list[str]:
        """The ways of ``NAMES`` in which a row's answer names one of its choices."""
        texts, labels = self._choices(row, "choice")
        gold = fields.text(row, column)
        if ways := [way for way, names in NAMES.items() if gold in names(texts, labels)]:
            return ways
        raise UserError(f"expected one of the choices in field '{column}', got {gold[:60]!r}")

    def __call__(self, row: Mapping[str, object], index: int) -> Problem | Exemplar:
        return self.problem(row, index)

    def problem(self, row: Mapping[str, object], index: int) -> Problem:
        """Return the problem of a row."""
        kind = self.type_of(row)
        for option in ("question", "answer", "id", *(["choices"] if kind == "choice" else [])):
            self._require(row, option)
        question, gold = fields.text(row, self.question), None
        texts, labels = self._choices(row, kind)
        if texts:
            listed = (f"({letter}) {text}" for letter, text in zip(_LETTERS, texts, strict=False))
            question = "\n".join((question, *listed))
        if self.answer is not None:
            gold = self._gold(row, self.answer, kind, texts, labels)
        identity = index if self.id is None else fields.text(row, self.id)
        return Problem(f"{self.name}-{identity}", question, gold, kind, row)

    def _require(self, row: Mapping[str, object], option: str) -> None:
        """Raise UserError if the column that ``option`` names is not in the row."""
        column = getattr(self, option)
        if column is not None and column not in row:
            names = [str(name) for name in row]
            raise UserError(
                f"expected a field '{column}', got {', '.join(names) or 'no field'}; name yours, such as "
                f"dataset.row.{option}={names[0] if names else 'NAME'}"
            )

    def _choices(self, row: Mapping[str, object], kind: str) -> tuple[list[str], list[str]]:
        if self.choices is None or self.choices not in row:
            return [], []
        if kind != "choice" and not row[self.choices]:  # a table has the column in every row
            return [], []
        choices = fields.value(row, self.choices)
        labels = None
        if isinstance(choices, Mapping):
            choices, labels = choices.get("text"), choices.get("label")
        if not isinstance(choices, list) or not 2 <= len(choices) <= 26:
            raise UserError(f"expected 2 to 26 choices in field '{self.choices}', got {str(choices)[:60]}")
        return fields.texts(choices, self.choices), fields.texts(labels or [], self.choices)

    def _gold(
        self, row: Mapping[str, object], column: str, kind: str, texts: list[str], labels: list[str]
    ) -> str:
        if kind in ("number", "boolean"):
            try:
                return fields.number(row, column) if kind == "number" else fields.boolean(row, column)
            except UserError as error:
                raise UserError(
                    f"{error}; dataset.answer_type={kind} sets the type of all answers, and a column "
                    f"answer_type that of each row ({', '.join(ANSWER_TYPES)})"
                ) from error
        gold = fields.text(row, column)
        if kind != "choice":
            return gold
        way = self.answer_as or self._ways(row, column)[0]
        names = NAMES[way](texts, labels)
        if gold not in names:
            raise UserError(f"expected one of the choices in field '{column}' by {way}, got {gold[:60]!r}")
        return _LETTERS[names.index(gold)]


@dataclass(frozen=True)
class ExemplarColumns(Columns):
    """An adapter for training rows: the columns of a problem and of its reasoning."""

    thought: str = "thought"

    def __call__(self, row: Mapping[str, object], index: int = 0) -> Exemplar:
        problem = self.problem(row, index)
        if problem.gold is None:
            raise UserError("dataset.train.row.answer: expected the name of a column, got null")
        return Exemplar(problem.question, fields.text(row, self.thought), problem.gold)
