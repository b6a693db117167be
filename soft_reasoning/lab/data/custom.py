"""Adapters for any data set, by the names of its columns."""

from __future__ import annotations

import json
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import choice as one_of
from soft_reasoning.lab.data import fields
from soft_reasoning.lab.data.fields import Doc
from soft_reasoning.lab.data.sources import Row, located
from soft_reasoning.types import Problem, UserError

LETTERS = string.ascii_uppercase
WAYS = ("labels", "letters", "texts", "from_0", "from_1")
"""How gold answers may name a choice: by its label, letter or text, or by its index from 0 or 1."""


@dataclass(frozen=True)
class Columns:
    """An adapter: the columns of the question, the gold answer and, optionally, an id and the choices.

    A field ``answer_type`` of a row is that row's type of answer.

    ``choices`` is a list of texts, a mapping with the lists ``text`` and ``label``, or JSON of these. It is
    listed under the question as (A), (B), .... By default it is the field of that name, where a row of type
    choice has one. A row whose answer is missing, null or blank is not graded, and one without an id has its
    number as its id. ``answer=None`` and ``id=None`` read no such column.

    Gold answers name a choice in one of the ``WAYS``: ``answer_as``, or the one that fits most rows of a file
    (:meth:`over`).
    """

    question: str
    answer: str | None
    id: str | None = "id"
    choices: str | None = None
    answer_type: str = "number"
    name: str = "custom"
    answer_as: str | None = None

    def __post_init__(self) -> None:
        if self.answer_as is not None:
            one_of("answer_as", self.answer_as, WAYS)

    def over(self, rows: Sequence[Row]) -> Self:
        """Return this adapter with the way in which the answers of most ``rows`` name a choice.

        Raises:
            UserError: If no row has a column, or one has no list of choices.
        """
        columns = {"question": self.question, "answer": self.answer, "id": self.id, "choices": self.choices}
        for option, column in columns.items():
            optional = column is None or option == column == "id"
            if not optional and not any(column in row.doc for row in rows):
                names = [str(name) for name in rows[0].doc] or ["no field"]
                fix = f"name yours, such as dataset.row.{option}={names[0]}"
                raise UserError(
                    f"{rows[0].where}: expected a field '{column}', got {', '.join(names)}; {fix}"
                )
        fits = Counter[str]()
        for row in rows:
            with located(row.where):
                if self.answer and self._type_of(row.doc) == "choice" and fields.given(row.doc, self.answer):
                    fits.update([*self._named(row.doc, self.answer)])
        return replace(self, answer_as=self.answer_as or max(WAYS, key=fits.__getitem__))

    def __call__(self, row: Doc, index: int) -> Problem:
        """Return the problem of a row."""
        kind = self._type_of(row)
        question = fields.text(row, self.question)
        texts, _ = self._choices(row)
        listed = [f"({letter}) {text}" for letter, text in zip(LETTERS, texts, strict=False)]
        identity = fields.text(row, self.id) if self.id and fields.given(row, self.id) else index
        gold = self._gold(row, self.answer, kind) if self.answer and fields.given(row, self.answer) else None
        return Problem(f"{self.name}-{identity}", "\n".join([question, *listed]), gold, kind, row)

    def _type_of(self, row: Doc) -> str:
        return one_of("answer_type", str(row.get("answer_type") or self.answer_type), ANSWER_TYPES)

    def _gold(self, row: Doc, column: str, kind: str) -> str:
        if kind == "choice":
            named = self._named(row, column)
            way = self.answer_as or next(iter(named), "")
            if way not in named:
                raise UserError(
                    f"expected field '{column}' to name one of the choices by {way or ' or '.join(WAYS)}, "
                    f"got {fields.text(row, column)[:60]!r}; see dataset.row.answer_as"
                )
            return LETTERS[named[way]]
        readers = {"number": fields.number, "boolean": fields.boolean, "json": fields.json_value}
        if kind not in readers:
            return fields.text(row, column)
        try:
            return readers[kind](row, column)
        except UserError as error:
            raise UserError(
                f"{error}; dataset.answer_type={kind} sets the type of all answers, and a column answer_type "
                f"that of each row ({', '.join(ANSWER_TYPES)})"
            ) from error

    def _choices(self, row: Doc) -> tuple[list[str], list[str]]:
        """The texts and labels of a row's choices; empty if it has none."""
        column, choosing = self.choices or "choices", self._type_of(row) == "choice"
        given = row.get(column)
        if self.choices is None and (not choosing or given in (None, "")) or not (choosing or given):
            return [], []  # a table has the column in every row
        texts, labels = fields.value(row, column), []
        with suppress(ValueError, RecursionError):  # a column of CSV is text
            texts = json.loads(texts) if isinstance(texts, str) else texts
        if isinstance(texts, Mapping):
            texts, labels = texts.get("text"), texts.get("label") or []
        sizes = [len(part) if isinstance(part, list) else -1 for part in (texts, labels)]
        if not 2 <= sizes[0] <= len(LETTERS) or sizes[1] not in (0, sizes[0]):
            raise UserError(
                f"expected 2 to 26 choices in field '{column}', as a list with as many labels or none, or a "
                f"JSON list, got {given!s:.60}"
            )
        texts, labels = ([fields.text({column: each}, column) for each in part] for part in (texts, labels))
        return texts, labels

    def _named(self, row: Doc, column: str) -> dict[str, int]:
        """The index of the choice that a row's answer names, in each way in which it names one."""
        texts, labels = self._choices(row)
        gold, places = fields.text(row, column), range(len(texts))
        ways = {
            "labels": labels,
            "letters": [*LETTERS[: len(texts) or None]],
            "texts": texts,
            "from_0": [str(i) for i in places],
            "from_1": [str(i + 1) for i in places],
        }
        return {way: choices.index(gold) for way, choices in ways.items() if gold in choices}
