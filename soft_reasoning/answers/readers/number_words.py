"""Numbers in words: ``twenty-five``, ``half a dozen``, ``two and a half``, ``three quarters``."""

from __future__ import annotations

import re
from fractions import Fraction

from soft_reasoning.answers.reader import any_of

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_VALUES = {word: i for i, word in enumerate(_SMALL)} | {word: 10 * i for i, word in enumerate(_TENS, start=2)}
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "tenth": 10}

_WORD = "|".join([*_VALUES, *_SCALES])
_A = rf"an?(?=[\s-](?:{'|'.join([*_SCALES, *_PARTS])})\b)"
_PART = rf"(?:{'|'.join(_PARTS)})(?:s|ves)?"
_NOTHING = r"(?:none|nothing)(?=\sleft\b)|no\s(?:more\s)?[a-z]+\s(?:(?:is|are)\s)?(?:left|remain(?:s|ing)?)"
_PHRASE = re.compile(
    rf"(?<![\w-])(?:(?P<minus>minus|negative)\s)?(?:"
    rf"(?P<half>half)(?:\sof)?\sa\s(?P<scale>{'|'.join(_SCALES)})"
    rf"|(?P<count>(?:(?:{_WORD})\b|{_A})(?:(?:[\s-]|\sand\s)(?:{_WORD})\b){{0,9}})"
    rf"(?:(?P<and>\sand)?(?:\s(?:a|one))?[\s-](?P<part>{_PART})\b)?"
    rf"|(?P<alone>half|{_NOTHING}|none))(?!\w)",
    re.IGNORECASE,
)
_BEFORE_ONE = re.compile(r"\W*(?:(?:just|only|exactly|about)\W+)?", re.IGNORECASE)
_NO_COUNT = re.compile(
    rf"\b{any_of('no, any, some, every, each, this, that, another, which, the, last, first')}\s$",
    re.IGNORECASE,
)


def find(text: str, begin: int = 0) -> tuple[Fraction, int, int] | None:
    """``(value, start, end)`` of the first number in words in ``text[begin:]``, or None.

    "one" counts only at the beginning, since elsewhere it mostly means a thing ("the one that").
    """
    for found in _PHRASE.finditer(text, begin):
        word = found.group().lower()
        opening = _BEFORE_ONE.fullmatch(text, 0, found.start()) is not None
        if word in ("one", "none") and not opening:
            continue
        if _NO_COUNT.search(text, max(0, found.start() - 10), found.start()) and word in ("one", "half"):
            continue
        value = _value(found)
        return (-value if found["minus"] else value), found.start(), found.end()
    return None


def _value(found: re.Match[str]) -> Fraction:
    if found["half"]:
        return Fraction(_SCALES[found["scale"].lower()], 2)
    if found["alone"]:
        return Fraction(1, 2) if found["alone"].lower() == "half" else Fraction(0)
    words = found["count"].lower()
    if not found["part"]:
        return Fraction(_count(words))
    part = next(Fraction(1, n) for name, n in _PARTS.items() if found["part"].lower().startswith(name[:3]))
    if found["and"]:
        return _count(words) + part
    whole, _, parts = words.rpartition(" and ")  # "five and three quarters"
    return _count(whole) + _count(parts) * part


def _count(words: str) -> int:
    """The value of words such as "two thousand three hundred and five"."""
    total = current = 0
    for word in re.findall(r"[a-z]+", words):
        if word in ("a", "an"):
            current = 1
        elif word in _VALUES:
            current += _VALUES[word]
        elif word in ("hundred", "dozen"):
            current = max(current, 1) * _SCALES[word]
        elif word in _SCALES:
            total, current = total + max(current, 1) * _SCALES[word], 0
    return total + current
