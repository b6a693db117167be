"""StrategyQA: ``qid``, ``term``, ``description``, ``question``, ``answer`` (boolean), ``facts``.

The question is shown as "term: description. question".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soft_reasoning.data import fields
from soft_reasoning.data.exemplars import Exemplar
from soft_reasoning.types import Problem


def problem(row: Mapping[str, Any], index: int) -> Problem:
    """Convert a row."""
    identity = f"strategyqa-{row.get('qid') or index}"
    return Problem(identity, question(row), fields.boolean(row, "answer"), "boolean", row)


def exemplar(row: Mapping[str, Any]) -> Exemplar:
    """Convert a training row; the annotated facts are the reasoning."""
    facts = fields.value(row, "facts")
    facts = [facts] if isinstance(facts, str) else facts
    thought = " ".join(fields.sentence(" ".join(str(fact).split())) for fact in facts)
    return Exemplar(question(row), thought, fields.boolean(row, "answer"))


def question(row: Mapping[str, Any]) -> str:
    """Return the question after its term and description, if the row has them."""
    term, description = (str(row.get(key) or "").strip() for key in ("term", "description"))
    about = ": ".join(part for part in (term, description) if part)
    asked = fields.text(row, "question")
    return f"{fields.sentence(about)} {asked}" if about else asked
