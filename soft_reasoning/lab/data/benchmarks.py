"""The benchmarks' rows: each adapter converts one row into a problem.

| benchmark | fields |
| --- | --- |
| GSM8K | ``question``, ``answer`` (a worked solution, then ``#### `` and the number) |
| SVAMP | ``Body`` and ``Question``, ``Answer``, ``ID`` |
| StrategyQA | ``qid``, ``term``, ``description``, ``question``, ``answer`` (boolean) |
"""

from __future__ import annotations

from soft_reasoning.lab.data import fields
from soft_reasoning.lab.data.fields import Doc
from soft_reasoning.types import Problem, UserError


def gsm8k(row: Doc, index: int) -> Problem:
    """Convert a row of GSM8K."""
    _, mark, gold = fields.text(row, "answer").rpartition("####")
    if not mark:
        raise UserError("expected '#### <number>' at the end of field 'answer', got none")
    gold = fields.canonical_number(gold.strip(), "answer")
    return Problem(f"gsm8k-{index}", fields.text(row, "question"), gold, "number", row)


def svamp(row: Doc, index: int) -> Problem:
    """Convert a row of SVAMP; body and question are joined by exactly one full stop."""
    question = f"{_sentence(fields.text(row, 'Body'))} {fields.text(row, 'Question')}"
    name = str(row.get("ID") or f"svamp-{index}")
    return Problem(name, question, fields.number(row, "Answer"), "number", row)


def strategyqa(row: Doc, index: int) -> Problem:
    """Convert a row of StrategyQA to "term: description. question", without the parts that it lacks."""
    term, description = (str(row.get(key) or "").strip() for key in ("term", "description"))
    about = ": ".join(part for part in (term, description) if part)
    question = fields.text(row, "question")
    name = f"strategyqa-{row.get('qid') or index}"
    question = f"{_sentence(about)} {question}" if about else question
    return Problem(name, question, fields.boolean(row, "answer"), "boolean", row)


def _sentence(words: str) -> str:
    """Return text that ends in exactly one punctuation mark, so that a sentence can follow."""
    words = words.strip().rstrip(",;").rstrip()
    return words if words.endswith((".", "?", "!")) else f"{words}."
