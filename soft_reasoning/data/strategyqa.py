"""StrategyQA: ``qid``, ``term``, ``description``, ``question``, ``answer`` (boolean), ``facts``.

The question is shown as "term: description. question", the term being what it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soft_reasoning.data import fields
from soft_reasoning.data.exemplars import Exemplar
from soft_reasoning.types import Problem


def problem(row: Mapping[str, Any], index: int) -> Problem:
    identity = f"strategyqa-{row.get('qid') or index}"
    return Problem(identity, question(row), fields.boolean(row, "answer"), "boolean", row)


def exemplar(row: Mapping[str, Any]) -> Exemplar:
    """The annotated facts serve as reasoning."""
    facts = fields.value(row, "facts")
    facts = [facts] if isinstance(facts, str) else facts
    thought = " ".join(fields.sentence(" ".join(str(fact).split())) for fact in facts)
    return Exemplar(question(row), thought, fields.boolean(row, "answer"))


def question(row: Mapping[str, Any]) -> str:
    """The question behind its term and description; alone where a row has neither."""
    term, description = (str(row.get(key) or "").strip() for key in ("term", "description"))
    about = ": ".join(part for part in (term, description) if part)
    asked = fields.text(row, "question")
    return f"{fields.sentence(about)} {asked}" if about else asked
