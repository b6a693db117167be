"""Choices: the letter of an option.

A letter counts where it names an option: at the beginning of a statement, in brackets, after "option" or
"is". It must be offered, and no other option's text may follow it. Without a letter the text of an option
gives its letter; so it does in the last sentence alone where nothing marks the answer. A statement that
denies ("not B") or names two has none. Options that the text only lists again are not read.
"""

from __future__ import annotations

import re
from functools import lru_cache

from soft_reasoning.answers.statement import DENIES, Reading
from soft_reasoning.answers.text import folded

_OFFERED = re.compile(r"(?:^|(?<=\s))\(?([A-Z])[).:]\s+(?=\S)")
_NAMED = re.compile(
    r"""(?:^\W*(?:\\text\w*\{)?|\((?=[A-Z]\))|(?i:\b(?:option|choice|letter|answer|is|be)\b)[\s:*("']{1,4}
      |(?<=[A-Z])\)?(?:,?\s(?:and|or)\s|,\s|\s?[&/]\s?)\(?)
    (?P<letter>[A-Z]|[a-z](?=\)|\W*$))
    (?!\w|['’]\w|\s?[=+*/^<>_\\]|(?<=[AI])\s(?!(?:is|as|because|since|and|or)\b)[a-z])""",
    re.VERBOSE,
)

_OPENS = re.compile(r"\W*(?:option|choice|letter|\\text\w*)?\W*", re.IGNORECASE)
_STANDS = re.compile(r"\W*$|[\s*\"'”’]*(?:[).:,;}–—]|\s(?:is (?:the|correct|right)|because|since|as)\b)")
"""After a letter or text at the beginning of a statement that decides."""
_SINGLE = re.compile(r"(?<![\w'’])(?<!\d\s)(?:[B-HJ-Z]|[AI](?!\s[a-z]))(?![\w'’])")


@lru_cache(maxsize=1024)
def options(question: str) -> dict[str, str]:
    """The texts of the options that a question lists, as (A) or A. or A:, by letter."""
    places: list[re.Match[str]] = []
    for match in _OFFERED.finditer(question):
        if match[1] == "A":
            places = [match]
        elif places and ord(match[1]) == ord(places[-1][1]) + 1:
            places.append(match)
    ends = [*(place.start() for place in places[1:]), len(question)][: len(places)]
    texts = [question[place.end() : end] for place, end in zip(places, ends, strict=True)]
    return {place[1]: text.strip().partition("\n")[0] for place, text in zip(places, texts, strict=True)}


def without_list(plain: str, question: str) -> str:
    """``plain`` with spaces in place of the options, if lines of it list two or more of them again."""
    listed = [
        match.span()
        for letter, text in options(question).items()
        for match in re.finditer(rf"^\W*{letter}[).:]\s*{re.escape(text.strip())}\s*$", plain, re.MULTILINE)
    ]
    for start, end in listed if len(listed) > 1 else ():
        plain = plain[:start] + " " * (end - start) + plain[end:]
    return plain


def read(statement: str, question: str = "") -> Reading | None:
    """The letter that a statement gives; None if it holds none, without an answer if it is ambiguous."""
    return read_letter(statement, question) or _read_text(statement, question)


def read_letter(statement: str, question: str = "") -> Reading | None:
    """The same, without options that are named by their text."""
    named = [Reading(match["letter"].upper(), *match.span("letter")) for match in _NAMED.finditer(statement)]
    if not named:
        return None
    offered, letters = _offered(question), {reading.answer for reading in named}
    after = folded(statement[named[0].end :]).lstrip(").:*-–— ")
    own = offered.get(named[0].answer or "")
    other = any(text.match(after) for text in offered.values()) and not (own and own.match(after))
    fits = len(letters) == 1 and (not offered or letters <= {*offered}) and not other
    opens = _OPENS.fullmatch(statement, 0, named[0].start) and _STANDS.match(statement, named[0].end)
    clear = opens or letters >= {*_SINGLE.findall(statement)} and not DENIES.search(statement)
    return named[0] if fits and clear else Reading(None)


def _read_text(statement: str, question: str) -> Reading | None:
    """The option whose text a statement holds."""
    plain = folded(statement)
    told = [
        (letter, *place.span())
        for letter, text in _offered(question).items()
        for place in text.finditer(plain)
    ]
    told = [t for t in told if not any(o != t and o[1] <= t[1] and t[2] <= o[2] for o in told)]
    if not told:
        return None
    _, begin, end = told[0]
    opens = _OPENS.fullmatch(plain, 0, begin) and _STANDS.match(plain, end)
    clear = opens or not DENIES.search(plain[:begin] + plain[end:])
    clear = clear and len({letter for letter, *_ in told}) == 1
    start = len(statement) - len(statement.lstrip())
    return Reading(told[0][0], start, len(statement.rstrip())) if clear else Reading(None)


@lru_cache(maxsize=1024)
def _offered(question: str) -> dict[str, re.Pattern[str]]:
    """What finds the text of each option, by letter."""
    return {letter: _words(text) for letter, text in options(question).items()}


def _words(text: str) -> re.Pattern[str]:
    whole = re.escape(folded(text).rstrip("."))
    return re.compile(rf"(?<![\w^_=+*/−-])(?<!\d[.,]){whole}(?![\w^=+*/!%]|[.,]\d)")  # no part of a formula
