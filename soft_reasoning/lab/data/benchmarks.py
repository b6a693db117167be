"""The benchmarks' rows: each adapter converts one row into a problem, or a training row into an exemplar.

| benchmark | fields |
| --- | --- |
| GSM8K | ``question``, ``answer`` (a worked solution, then ``#### `` and the number) |
| SVAMP | ``Body`` and ``Question``, ``Equation``, ``Answer``, ``ID`` |
| StrategyQA | ``qid``, ``term``, ``description``, ``question``, ``answer`` (boolean), ``facts`` |
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from soft_reasoning.lab.data import fields
from soft_reasoning.prompts import Exemplar
from soft_reasoning.types import Problem, UserError

Row = Mapping[str, object]


def gsm8k(row: Row, index: int) -> Problem:
    """Convert a row of GSM8K."""
    return Problem(f"gsm8k-{index}", fields.text(row, "question"), gsm8k_solution(row)[1], "number", row)


def gsm8k_exemplar(row: Row) -> Exemplar:
    """Convert a training row; the worked solution loses its calculator marks (``<<3*4=12>>``)."""
    thought, answer = gsm8k_solution(row)
    return Exemplar(fields.text(row, "question"), re.sub(r"<<[^<>]*>>", "", thought), answer)


def gsm8k_solution(row: Row) -> tuple[str, str]:
    """Return the text before the last ``####`` and the number after it."""
    before, mark, gold = fields.text(row, "answer").rpartition("####")
    if not mark:
        raise UserError("expected '#### <number>' at the end of field 'answer', got none")
    return before.strip(), fields.canonical_number(gold.strip(), "answer")


def svamp(row: Row, index: int) -> Problem:
    """Convert a row of SVAMP."""
    name = row.get("ID") or f"svamp-{index}"
    return Problem(str(name), svamp_question(row), fields.number(row, "Answer"), "number", row)


def svamp_exemplar(row: Row) -> Exemplar:
    """Convert a training row; the equation is the reasoning."""
    answer = fields.number(row, "Answer")
    equation = fields.text(row, "Equation").replace(".0", "")
    return Exemplar(svamp_question(row), f"{equation} = {answer}.", answer)


def svamp_question(row: Row) -> str:
    """Join body and question by exactly one full stop."""
    return f"{fields.sentence(fields.text(row, 'Body'))} {fields.text(row, 'Question')}"


def strategyqa(row: Row, index: int) -> Problem:
    """Convert a row of StrategyQA."""
    name = f"strategyqa-{row.get('qid') or index}"
    return Problem(name, strategyqa_question(row), fields.boolean(row, "answer"), "boolean", row)


def strategyqa_exemplar(row: Row) -> Exemplar:
    """Convert a training row; the annotated facts are the reasoning."""
    facts = fields.value(row, "facts")
    facts = [facts] if isinstance(facts, str) else facts
    thought = " ".join(fields.sentence(" ".join(str(fact).split())) for fact in facts)
    return Exemplar(strategyqa_question(row), thought, fields.boolean(row, "answer"))


def strategyqa_question(row: Row) -> str:
    """Return "term: description. question", without the parts that the row lacks."""
    term, description = (str(row.get(key) or "").strip() for key in ("term", "description"))
    about = ": ".join(part for part in (term, description) if part)
    question = fields.text(row, "question")
    return f"{fields.sentence(about)} {question}" if about else question
