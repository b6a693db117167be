"""Booleans: the verdict of a statement, a word such as yes, no, true or false.

A statement has one verdict. One that denies it ("not true") or doubts it ("maybe", "it depends") has none.
"""

from __future__ import annotations

import re

from soft_reasoning.answers.statement import DENIES, Reading

_VERDICT = re.compile(
    r"\b(?:(?P<yes>yes|true|correct)|(?P<no>no(?=\s*(?:[.,;:!)\]}\"'–—-]|$))|false|incorrect))\b",
    re.IGNORECASE,
)

_WORD = re.compile(r"\w")
_EITHER = re.compile(r"\W{0,4}(?:or|and|/)\b|\s?/")


def read(statement: str, question: str = "") -> Reading | None:
    """The verdict that a statement gives; None if it holds none, without an answer if it is ambiguous."""
    verdicts = [Reading(str(bool(match["yes"])), *match.span()) for match in _VERDICT.finditer(statement)]
    if not verdicts:
        return None
    first, last = verdicts[0], verdicts[-1]
    if not _WORD.search(statement[: first.start]) and not _EITHER.match(statement, first.end):
        return first
    agreed = len({verdict.answer for verdict in verdicts}) == 1
    return (
        first
        if agreed and not DENIES.search(statement[: last.end] + statement.rstrip()[-1:])
        else Reading(None)
    )
