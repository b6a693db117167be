r"""Numbers in running text: where they are, their exact values and their canonical form.

Values are exact (:class:`fractions.Fraction`), so ``1/3``, ``.5``, ``18.``, ``1,234,567``, ``1 000 000``,
``1 1/2``, ``\frac{3}{4}``, ``1.5e6``, ``3 \times 10^{-2}``, ``−7``, ``5 million`` and ``$5M`` are read
without rounding. A comma before any number of digits but three is a decimal comma: ``2,5``, ``1.234,50``.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from decimal import Context
from fractions import Fraction
from functools import lru_cache

from soft_reasoning.answers.reader import Reading

LONGEST = 400
"""Powers of ten beyond this, and numbers of more characters, are not answers and are not computed."""

_MINUS = "-−‐‑–﹣"
_GROUP = r"(?:\{,\}|,?\\[,!;: ]|[,'’ \u00a0\u2009\u202f_])\s?"
_DIGITS = (
    rf"(?:\d{{1,3}}(?:{_GROUP}\d{{3}})+(?!\d)(?:\.\d+|(?<=[ \u00a0\u202f]\d{{3}}),\d+)?"
    r"|\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}|\d++(?:[.,]\d++)?+(?!(?:st|nd|rd|th)\b)|(?<![\d.])\.\d+)"
)
_CURRENCY = r"(?:US\\?\$|\\?[$€£¥₹]|USD|EUR|GBP|Rs\.?)"
_FRACTION = r"\\[cdt]?frac\s?(?:\{\s?-?[\d.,]+\s?\}\s?\{\s?-?[\d.,]+\s?\}|\d\s?\d)"
_GLYPH = "[¼-¾⅐-⅞]"
_EXPONENT = rf"(?:\^\{{?[{_MINUS}+]?\d+\}}?|[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)"
_TIMES = r"(?:[×x*·⋅]|\\times|\\cdot)"
_SCALES = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "lakh": 10**5,
    "crore": 10**7,
}
_LETTERS = {"k": 10**3, "m": 10**6, "b": 10**9, "bn": 10**9}

_NUMBER = re.compile(
    rf"""(?<![A-Za-z0-9_√^])(?<!\\sqrt\{{)(?<!\\sqrt\s)
    (?P<sign>(?:minus|negative)\s|[{_MINUS}+]\s?)?
    (?P<currency>{_CURRENCY}\s?)*
    (?P<inner>[{_MINUS}])?
    (?P<value>{_FRACTION}|\\[cdt]?frac(?:\s?\{{[^{{}}]{{0,99}}(?:\{{[^{{}}]{{0,99}}\}}[^{{}}]{{0,99}})?\}}){{0,2}}|{_GLYPH}|{_DIGITS}(?:
        \s?{_TIMES}\s?10{_EXPONENT} | [eE][-+]?\d+(?!\w) | {_EXPONENT}
      | \s?(?:{_FRACTION}|{_GLYPH}) | (?:\s|\sand\s)\d+[/⁄]\d+(?![/\d]) | \s?[/⁄]\s?{_DIGITS})?)
    (?:\s?(?P<scale>{"|".join(_SCALES)})\b|(?P<letter>[kK]|(?-i:M|B|bn))(?![\w'’]))?
    (?P<unread>\s?(?:\\sqrt|√|\\pi\b|π|\\frac)|[:/,]\d+|(?-i:[xyzn])(?![\w'’])|(?-i:[a-z])(?=\s?[-+]\s?\d))?""",
    re.VERBOSE | re.IGNORECASE,
)
_FORM = re.compile(
    r"(?P<number>[\d.,]+)(?:(?:\*10\^|e)(?P<exponent>[-+]?\d+)|\^(?P<power>[-+]?\d+)"
    r"|(?:\s(?P<over>\d+))?/(?P<under>[\d.,]+))?",
    re.IGNORECASE,
)
_SPELLINGS: tuple[tuple[str, str], ...] = (
    (rf"[{_MINUS}⁻]", "-"),
    (_GROUP + r"(?=\d{3}(?!\d|/))", ","),
    (r"(?<=\d)([-+]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)", r"^\1"),
    (rf"\s?({_GLYPH})", r" \1"),
    (r"\s?\\[cdt]?frac\s?\{\s?([^{}]+?)\s?\}\s?\{\s?([^{}]+?)\s?\}", r" \1/\2"),
    (r"\s?\\[cdt]?frac\s?(\d)\s?(\d)", r" \1/\2"),
    (rf"\s?{_TIMES}\s?", "*"),
    (r"[{}]", ""),
    (r"\s?[/⁄]\s?", "/"),
    (r"\sand\s", " "),
)
"""Spellings, each with its replacement that ``_FORM`` matches."""


def find(text: str) -> Iterator[Reading]:
    """Yield the numbers of ``text`` in order; those that cannot be computed (``5/0``, ``2x``) have no answer.

    Digits inside words (``H2O``) do not count.
    """
    for match in _NUMBER.finditer(text):
        minus = "inner" if match["inner"] else "sign" if _negative(text, match) else ""
        value = None if match["unread"] else _value(match["value"])
        if value is not None and match["letter"]:  # "5 M" is ambiguous, "$5M" is money
            is_scale = match["currency"] or match["letter"] in "kK"
            value = value * _LETTERS[match["letter"].lower()] if is_scale else None
        if value is not None:
            value *= (-1 if minus else 1) * _SCALES.get((match["scale"] or "").lower(), 1)
        answer = None if value is None else canonical(value)
        yield Reading(answer, match.start(minus or "value"), match.end())


def _negative(text: str, match: re.Match[str]) -> bool:
    """Whether a sign is a minus: not in "9 - 5", "Answer - 5" or, before a space, in the middle of a text."""
    sign = match["sign"] or "+"
    if sign[0] == "+" or len(sign) > 2:
        return sign[0] != "+"
    before = text[: match.start()][-20:]
    last = before.rstrip()[-1:]
    if len(sign) == 1:
        return not (before[-1:].isalpha() or last.isdigit() or last and last in ")%]}")
    return not last or last in ":=≈({[$"


def _value(text: str) -> Fraction | None:
    """The value of a number in any spelling; None where it cannot be computed."""
    if len(text) > LONGEST:
        return None
    for spelling, replacement in _SPELLINGS:
        text = re.sub(spelling, replacement, text)
    text = unicodedata.normalize("NFKC", text).replace("⁄", "/").strip()
    form = _FORM.fullmatch(text.removeprefix("-"))
    if form is None:
        return None
    value = _plain(form["number"])
    if power := form["exponent"] or form["power"]:
        base = Fraction(10) if form["exponent"] else value
        if abs(int(power)) * len(str(base)) > LONGEST or not base:
            return None
        value = value * base ** int(power) if form["exponent"] else base ** int(power)
    elif form["under"]:
        under = _plain(form["under"])
        if not under:
            return None
        value = value + int(form["over"]) / under if form["over"] else value / under
    return -value if text.startswith("-") else value


def _plain(digits: str) -> Fraction:
    """The value of digits with decimal points and commas."""
    comma = digits.rfind(",")
    grouped = re.fullmatch(r"\d+(?:,\d{3})*(?:\.\d+)?", digits)
    if comma >= 0 and not grouped:
        digits = digits[:comma].replace(".", "") + "." + digits[comma + 1 :]  # 1.234,50 and 2,5
    elif digits.count(".") > 1:
        digits = digits.replace(".", "")
    return Fraction(digits.replace(",", ""))


@lru_cache(maxsize=65536)
def whole_value(text: str) -> Fraction | None:
    """Return the value of a text that is a single number, apart from currency, %, degrees and brackets."""
    numbers = list(find(text))
    if len(numbers) != 1:
        return None
    around = text[: numbers[0].start] + text[numbers[0].end :]
    if numbers[0].answer is None or around.strip("\\$€£%°(){}. \t\n"):
        return None
    return Fraction(numbers[0].answer)


def canonical(value: Fraction) -> str:
    """Return plain decimal text: exact if 30 decimals suffice, else 17 significant digits.

    >>> canonical(Fraction("18.0")), canonical(Fraction("-.5")), canonical(Fraction(1, 3))
    ('18', '-0.5', '0.33333333333333333')
    """
    exact = 10**30 % value.denominator == 0
    text = f"{Context(prec=4 * LONGEST if exact else 17).divide(value.numerator, value.denominator):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


_UNITS = "zero one two three four five six seven eight nine ten eleven twelve".split()
_TEENS = "thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SMALL: dict[str, int] = dict(zip(_UNITS + _TEENS + _TENS, [*range(20), *range(20, 100, 10)], strict=True))
_COUNTS = _SCALES | {"dozen": 12}
_WORD, _SCALE = "|".join(_SMALL), "|".join(_COUNTS)
_PHRASE = re.compile(
    rf"(?<![\w-])(?<!minus )(?<!negative )(?:{_WORD}|(?<!half )a(?= (?:{_SCALE})\b))"
    rf"(?:(?:[ -]|\sand\s(?:an?\s)?)(?:{_WORD}|{_SCALE}|half|third|quarter|point"
    r"|(?:four|fif|six|seven|eigh|nin|ten|hundred)th)s?\b)*(?![\w-])",
    re.IGNORECASE,
)


def find_words(text: str) -> Iterator[Reading]:
    """Yield the numbers in words; those that are not whole ("two and a half") have no answer.

    "one" counts only at the beginning: elsewhere it is mostly a pronoun ("the one that").
    """
    for match in _PHRASE.finditer(text):
        words = re.split(r"[\s-]", match.group().lower())
        if words != ["one"] or not re.search(r"\w", text[: match.start()]):
            value = _spelt(words)
            yield Reading(None if value is None else str(value), *match.span())


def _spelt(words: list[str]) -> int | None:
    """The value of "two thousand five hundred and six"; None where the words are no whole number."""
    value = group = 0  # the thousands and millions so far; what follows them
    room = math.inf  # the next word must be worth less
    for word in words:
        small, scale = 1 if word == "a" else _SMALL.get(word), _COUNTS.get(word, 0)
        if small is not None and (0 < small < room or words == ["zero"]):
            group, room = group + small, 10 if small >= 20 else 1
        elif scale in (12, 100) and 0 < group < 100:
            group, room = group * scale, scale
        elif scale >= 1000 and group and value % (1000 * scale) == 0:
            value, group, room = value + group * scale, 0, scale
        elif word != "and" or room not in _COUNTS.values():
            return None
    return value + group
