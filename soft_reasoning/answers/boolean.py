"""Booleans: the verdict of a statement, one of yes, no, true, false, correct and incorrect, or its denial.

A statement that holds two verdicts, doubts its verdict ("maybe", "it is not the case that") or concedes it
("while it is true that") has none.
"""

from __future__ import annotations

import re

from soft_reasoning.answers.statement import DENIES, Reading

_VERDICT = re.compile(
    r"(?P<not>(?:\bnot|n['’]t)\s(?:hold\s)?)?"
    r"\b(?:(?P<yes>yes|true|correct)|no(?=\s*(?:[.,;:!)\]}\"'–—-]|$))|false|incorrect)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w")
_CONCEDES = re.compile(r"\b(?:while|although|though)\b", re.IGNORECASE)
_EITHER = re.compile(r"\W{0,4}(?:or|and|/)\b|\s?/")


def read(statement: str, question: str = "") -> Reading | None:
    """The verdict that a statement gives; None if it holds none, without an answer if it is ambiguous."""
    verdicts = [
        Reading(str(bool(match["yes"]) != bool(match["not"])), *match.span())
        for match in _VERDICT.finditer(statement)
    ]
    if not verdicts:
        return None
    first = verdicts[0]
    if not _WORD.search(statement[: first.start]) and not _EITHER.match(statement, first.end):
        return first
    agreed = len({verdict.answer for verdict in verdicts}) == 1
    before = statement[: first.start]
    doubted = DENIES.search(before) or _CONCEDES.search(before) or statement.rstrip().endswith("?")
    return first if agreed and not doubted else Reading(None)
