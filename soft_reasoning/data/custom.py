"""Adapters for any data set, by the names of its columns."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from soft_reasoning.data import fields
from soft_reasoning.data.exemplars import Exemplar
from soft_reasoning.types import Problem, UserError

_LETTERS = string.ascii_uppercase


@dataclass(frozen=True)
class Columns:
    """An adapter: the columns of the question, the gold answer and, optionally, an id and the choices.

    ``choices`` is a list of texts, or a mapping with the lists ``text`` and ``label``; they are listed under
    the question as (A), (B), ..., and a gold answer may be a letter, a label, an index from 0 or a text.
    ``answer=None`` loads questions without gold answers.
    """

    question: str
    answer: str | None
    id: str | None = None
    choices: str | None = None
    answer_type: str = "number"
    name: str = "custom"

    def __call__(self, row: Mapping[str, Any], index: int) -> Problem:
        question, gold = fields.text(row, self.question), None
        texts, labels = self._choices(row)
        if texts:
            listed = (f"({letter}) {text}" for letter, text in zip(_LETTERS, texts, strict=False))
            question = "\n".join((question, *listed))
        if self.answer is not None:
            gold = self._gold(row, self.answer, texts, labels)
        identity = index if self.id is None else fields.text(row, self.id)
        return Problem(f"{self.name}-{identity}", question, gold, self.answer_type, row)

    def _choices(self, row: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        if self.choices is None:
            return [], []
        choices = fields.value(row, self.choices)
        labels = None
        if isinstance(choices, Mapping):
            choices, labels = choices.get("text"), choices.get("label")
        if not isinstance(choices, list) or not 2 <= len(choices) <= 26:
            raise UserError(f"expected 2 to 26 choices in field '{self.choices}', got {str(choices)[:60]}")
        texts = fields.texts(choices, self.choices)
        return texts, fields.texts(labels or list(range(len(texts))), self.choices)

    def _gold(self, row: Mapping[str, Any], column: str, texts: list[str], labels: list[str]) -> str:
        if self.answer_type == "number":
            return fields.number(row, column)
        if self.answer_type == "boolean":
            return fields.boolean(row, column)
        gold = fields.text(row, column)
        if self.answer_type != "choice":
            return gold
        letters = _LETTERS[: len(texts) or 26]
        for names in (labels, list(letters), texts):
            if gold in names:
                return letters[names.index(gold)]
        raise UserError(f"expected one of the choices in field '{column}', got {gold[:60]!r}")


@dataclass(frozen=True)
class ExemplarColumns(Columns):
    """An adapter for training rows: the columns of a problem and of its reasoning."""

    thought: str = "thought"

    def __call__(self, row: Mapping[str, Any], index: int = 0) -> Exemplar:
        problem = super().__call__(row, index)
        if problem.gold is None:
            raise UserError("dataset.train.row.answer: expected the name of a column, got null")
        return Exemplar(problem.question, fields.text(row, self.thought), problem.gold)
