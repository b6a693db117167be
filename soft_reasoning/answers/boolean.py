"""Booleans: the verdict with which a sentence begins, such as yes, no, true or incorrect.

A sentence that also holds the other verdict, or that asks, has none.
"""

from __future__ import annotations

import re

from soft_reasoning.answers.marks import Reading

_VERDICT = (
    r"(?P<not>not\s|n['’]t\s)?\b(?:(?P<yes>yes|yeah|yep|true|correct)"
    r"|no(?!-|\s(?!because|since)[a-z])|nope|false|incorrect|untrue)\b"
)
_OPENS = re.compile(
    rf"""\W*(?:(?:so|thus|therefore|hence|(?:in\s)?conclusion)\b\W*)?
    (?:(?:it|this|that|(?:the|this|that)\s(?:statement|claim|answer))(?:['’]s|\sis|\swould\sbe)\s)?
    (?:(?:clearly|definitely|most\slikely|likely|probably)\W+)?(?:\\text\w*\{{)?\W*
    (?P<verdict>{_VERDICT})(?:\W*$|[*"'”\])]*(?:[.,;:!]\s|\s?[-–—(])|\s(?:because|since)\b)""",
    re.VERBOSE | re.IGNORECASE,
)
"""A verdict that stands alone: not "no doubt" or "false positive"."""
_ANY = re.compile(_VERDICT, re.IGNORECASE)
_LETTER = re.compile(r"\W*(?:(?P<true>[ty])|[fn])\W*", re.IGNORECASE)


def read(sentence: str, question: str, marked: bool) -> Reading | None:
    """The verdict of a sentence; None if it gives none, without an answer if it is ambiguous.

    >>> [read(text, "", True).answer for text in ("no, he cannot", "So it is true.", "yes, but no")]
    ['False', 'True', None]
    """
    if marked and (letter := _LETTER.fullmatch(sentence)):
        return Reading(str(bool(letter["true"])), 0, letter.end())
    opens = _OPENS.match(sentence)
    if opens is None:
        return Reading(None) if marked and _ANY.search(sentence) else None
    verdicts = {_is_true(match) for match in _ANY.finditer(sentence)}
    clear = len(verdicts) == 1 and not sentence.rstrip().endswith("?")
    return Reading(str(_is_true(opens)) if clear else None, *opens.span("verdict"))


def _is_true(verdict: re.Match[str]) -> bool:
    return bool(verdict["yes"]) != bool(verdict["not"])
