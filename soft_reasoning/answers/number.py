r"""Numbers: finding them in a text, exact values, canonical text.

A number is, in this order (``_NUMBER``)::

    sign        -5  –5  minus 5  -(5)
    currency    $5  -$5  US$ 5
    value       1,234.5  1 234  1_234  1{,}234  .5      digits
                3½  3 1/2  3 and a half  3/4  \frac{-3}{4}  3 tenths
                3e5  3 \times 10^5  10^5
                forty-two  one hundred and five  a dozen
    scale       5 million  5-million  5 hundred thousand  2 dozen  12 lakh  $3bn  5k
    unit        5%  5 km  5m^2  20m/s  90^\circ

Weaker than these (``_WEAK``) are ordinals (21st, third), shares (half, a third) and "one". What is part of
something else has no value: 5!, 2x, 6:30, 5 ± 1. So has "2,5", which is a pair or a decimal comma.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from decimal import Context
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from soft_reasoning.answers.statement import PLAIN

LONGEST = 400
"""Numbers of more characters, and powers of ten beyond this, are not answers and are not computed."""

_UNDER_20 = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SMALL = {word: n for n, word in enumerate(_UNDER_20)} | {word: 10 * n for n, word in enumerate(_TENS, 2)}
_POWERS = {"hundred": 2, "thousand": 3, "lakh": 5, "lac": 5, "million": 6, "crore": 7, "billion": 9}
_POWERS |= {"trillion": 12, "quadrillion": 15}
SCALES = {"dozen": 12} | {word: 10**power for word, power in _POWERS.items()}
_LETTERS = {"k": 3, "m": 6, "mm": 6, "mn": 6, "bn": 9, "b": 9, "tn": 12, "t": 12}
"""Letters for a power of ten."""
_ORDINALS = {
    word: n for n, word in enumerate("third fourth fifth sixth seventh eighth ninth tenth".split(), 3)
}
_PARTS = _ORDINALS | {"half": 2, "quarter": 4, "hundredth": 100, "thousandth": 1000}
_ORDINALS |= {f"{word}th": n for n, word in enumerate(_UNDER_20) if n > 10 and n != 12}
_ORDINALS |= {"first": 1, "second": 2, "twelfth": 12, "twentieth": 20}


def _any(words: Iterable[str]) -> str:
    """A regular expression for one of several words."""
    return f"(?:{'|'.join(words)})"


_COMMA = r"(?:\\?,|\{,\}|,?\\!|_|[ ])"
_DIGITS = rf"(?:[1-9]\d{{0,2}}(?:{_COMMA}\d{{3}})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
_TOKEN = _any([*_SMALL, *SCALES])
_ARTICLE = rf"(?:half\s(?=an?\s))?(?:an?\s(?={_any(SCALES)}\b))?"
_WORDS = rf"\b{_ARTICLE}{_TOKEN}(?:(?:-|\s(?:and\s)?){_TOKEN})*\b(?!-[a-z])"
_SEVERAL = (
    rf"(?:(?:-|(?<=[a-z])\s)quarters|[\s-](?:halves|{_any(sorted({*_PARTS} - {'half', 'quarter'}))}s))\b"
)
_SCALE = rf"[\s-](?P<scale>{_any(SCALES)}(?:[\s-]{_any(SCALES)})?)s?\b"
_SHORT = r"""\s?(?P<letters>bn|mn|tn)\b|(?P<kilo>k|(?-i:M))(?![\w^/])
    |(?(currency)\s?(?P<money>mm?|b|t)\b(?![\^/])|(?!))"""  # "$5m" is 5 million, "5m" is not
_UNIT = r"(?:(?-i:m)(?:[²³]|\^?\{?[23]\}?)|(?-i:[mgshLlNJWVCFKA])/[a-z]+(?:[²³]|\^\{?-?[23]\}?)?)(?!\w)"
_NUMBER = re.compile(
    rf"""(?P<sign>\b(?:minus|negative)\s|-\s?)?(?:(?<=-)\()?(?P<currency>(?:US|\\)?[$€£¥₹]\s?)?(?P<inner>-)?
    (?P<value>(?:(?P<whole>\d+)\s?)?
        \\[cdt]?frac\s?(?:\{{\s?(?P<a>(?(whole)|-?)\d+)\s?\}}\s?\{{\s?(?P<b>(?(whole)|-?)\d+)\s?\}}
          |(?P<c>\d)\s?(?P<d>\d))
      |(?P<alone>[¼-¾⅐-⅞])|10\^\{{?(?P<ten>[-+]?\d+)\}}?
      |(?:(?P<digits>{_DIGITS})(?:\s?(?P<vulgar>[¼-¾⅐-⅞])|\s(?:and\s)?(?P<over>\d+)/(?P<under>\d+)
          |\s?/\s?(?P<divisor>\d+)|(?:\s?(?:[×x*]|\\times|\\cdot)\s?10\^|e)\{{?(?P<power>[-+]?\d+)\}}?)?
        |(?P<words>{_WORDS}))
       (?:[\s-]and[\s-](?P<times>an?|one|two|three)[\s-](?P<part>half|third|quarter)s?\b|(?P<parts>{_SEVERAL}))?)
    (?:{_SCALE}|{_SHORT})?(?:{_UNIT})?""",
    re.VERBOSE | re.IGNORECASE,
)
_WEAK = re.compile(
    rf"""(?P<digits>\d+)(?:st|nd|rd|th)\b|\b(?:
      (?:(?:an?|one|1)[\s-](?P<part>{_any(_PARTS)})|(?P<half>half))(?!\s(?:of\s)?(?:\\?[$€£])?\d)
      |(?P<ordinal>(?<=\bthe\s)(?:first|second)|{_any(sorted({*_ORDINALS} - {"first", "second"}))})
      |one)\b(?![-'’])""",
    re.VERBOSE | re.IGNORECASE,
)
_WITHIN = re.compile(r"[A-Za-z0-9_^.]$|[_^]\{$|\d:$")
"""Before digits of a word, an exponent or a time: H2O, cm^2, 6:30."""
_BOUND = re.compile(
    r"(?:[±√⁺⁻<>≤≥≠]|\\(?:pm|mp|sqrt\{?|[cdt]?frac\s?\{?|l[et]q?|g[et]q?|neq?)|\}\s?\{|(?<![A-Za-z])[A-Za-z]\s?\+"
    r"|[\d)]\s?(?:[*x×·÷/+]|\\(?:times|cdot|div))\s?[\\$(]{0,2}"
    r"|\b(?:not|than|(?:half|third|quarter)s? of|twice|double)|n['’]t)\s?$"
)
"""Before a number that is not the value: ± 5, √5, < 5, x + 5, 3 * 5, not 5, and in a fraction of others."""
_TERM = re.compile(r"[\w)}%](?P<space>\s?)$")
"""Before a minus that subtracts: x-5, x - 5."""
_MORE = re.compile(
    r"[!\d⁰¹²³⁴-⁻_]|\^(?!\{?\\circ)|[.,:]\d|[A-Za-z](?![A-Za-z'’])"
    r"|\s?(?:[√π±≤≥≠]|\\(?:sqrt|pi|pm|frac|[lgn]eq?\b|[lg]t\b))"
    r"|\s[<>]\s|\s?[-+*]\s?(?![aI]\s[a-z])[A-Za-z](?![A-Za-z'’])"
    r"|\s?(?:[-+*x×·÷/]|\\(?:times|cdot|div))\s?[\\$(]{0,2}\d|\+(?!\s)|\sor (?:more|less|fewer)\b"
    r"|-[a-z]+(?:st|nd|rd|th)\b|\s(?:gross|score)\b"
)
"""After a number that is not the value: 5!, 2^5, 2,5, 6:30, 2x, 2√3, 5 < x, 5 - x, 3 * 4, 2 gross."""
_ON = re.compile(rf"\s(?:and\s)?(?:{_TOKEN}|(?:an?|one)\s{_any(_PARTS)})\b", re.IGNORECASE)
"""After a scale: more of the same number, "5 hundred and twenty"."""
_ORDINAL = re.compile(r"(?:st|nd|rd|th)\b")


class Number(NamedTuple):
    """A number in a text and its place; rank 0 has digits, 1 is in words, 2 is weak."""

    answer: str | None
    start: int
    end: int
    rank: int = 0

    @property
    def value(self) -> Fraction | None:
        """Its exact value."""
        return None if self.answer is None else Fraction(self.answer)


def find(text: str, unit: str = "") -> Iterator[Number]:
    """Yield the numbers of ``text``; those that are parts of something else (2x, 5/0) have no answer.

    ``unit`` is a scale that the question asks for: "How many dozen eggs?"
    """
    for match in _NUMBER.finditer(text):
        start = match.start("value")
        before, after = text[max(0, match.start() - 12) : match.start()], text[match.end() :][:16]
        if _WITHIN.search(text, max(0, start - 2), start) or _ORDINAL.match(after):
            continue
        if (match["words"] or "").lower() == "one" and not match["part"]:
            continue
        sign = "inner" if match["inner"] else "sign" if match["sign"] else None
        part = _subtracts(match["sign"] or "", before) or _BOUND.search(before) or _MORE.match(after)
        part = part or match["scale"] and _ON.match(after)
        value = None if part else _value(match, unit)
        answer = None if value is None else _written(match, -value if sign else value)
        yield Number(answer, match.start(sign or "value"), match.end(), 1 if match["words"] else 0)


def find_weak(text: str) -> Iterator[Number]:
    """Yield the ordinals of ``text``, its shares in words, and "one"."""
    for match in _WEAK.finditer(text):
        if part := match["part"] or match["half"]:
            value = Fraction(1, _PARTS[part.lower()])
        else:
            ordinal = match["digits"] or _ORDINALS.get((match["ordinal"] or "").lower(), 1)
            value = Fraction(str(ordinal)[:LONGEST])
        denied = _BOUND.search(text, max(0, match.start() - 12), match.start())
        yield Number(None if denied else canonical(value), *match.span(), 2)


def _subtracts(sign: str, before: str) -> bool:
    """Whether the minus after ``before`` is an operator: x-5, x - 5; in "is -5" it is a sign."""
    term = _TERM.search(before) if sign[:1] == "-" else None
    return term is not None and (not term["space"] or sign.endswith(" "))


def _value(match: re.Match[str], unit: str) -> Fraction | None:
    """The value of a number without its sign; None where it cannot be computed."""
    if len(match.group()) > LONGEST:
        return None
    over, under = match["a"] or match["c"] or match["over"] or "0", match["b"] or match["d"] or match["under"]
    power, divisors = (
        int(match["power"] or match["ten"] or "0"),
        (int(under or 1), int(match["divisor"] or 1)),
    )
    letters = (match["letters"] or match["kilo"] or match["money"] or "").strip().lower()
    if abs(power) > LONGEST or 0 in divisors:
        return None
    said = _said(match["words"]) if match["words"] else None
    if match["words"] and said is None:
        return None
    digits = match["digits"] or match["whole"] or ("1" if match["ten"] else "0")
    value = said or Fraction(re.sub(_COMMA, "", digits))
    if sign := match["vulgar"] or match["alone"]:
        value += Fraction(unicodedata.numeric(sign)).limit_denominator(10)
    if match["part"]:
        scale = SCALES.get((match["words"] or "").lower().rpartition(" ")[2], 1)  # a dozen and a half
        value += Fraction(scale * _SMALL.get(match["times"].lower(), 1), _PARTS[match["part"].lower()])
    if parts := (match["parts"] or "")[1:].lower():
        value /= _PARTS["half" if parts == "halves" else parts.removesuffix("s")]
    value = (value + Fraction(int(over), divisors[0])) / divisors[1] * Fraction(10) ** power
    for scale in re.split(r"[\s-]", (match["scale"] or "").lower()):
        value *= 1 if scale == unit else SCALES.get(scale, 1)
    return value * 10 ** _LETTERS.get(letters, 0)


def _written(match: re.Match[str], value: Fraction) -> str:
    """A number's text: a fraction as it is written, another number as a decimal."""
    over, under = match["a"] or match["c"] or match["digits"], match["b"] or match["d"] or match["divisor"]
    over, under = (over or "").lstrip("-"), (under or "").lstrip("-")
    if under and over.isdecimal() and abs(value) == Fraction(int(over), int(under)) and value.denominator > 1:
        return f"{'-' if value < 0 else ''}{over}/{under}"
    return canonical(value)


def _said(words: str) -> Fraction | None:
    """The value of a number in words; None for several numbers, such as "two and three".

    >>> _said("two hundred and five"), _said("half a dozen"), _said("two three")
    (Fraction(205, 1), Fraction(6, 1), None)
    """
    total = group = 0
    scale, last = 10**100, ""
    for word in re.findall(r"[a-z]+", words.lower().removeprefix("half")):
        if word == "and" and last in SCALES or word in ("a", "an"):
            pass
        elif word in _SMALL:
            room = 100 if _SMALL[word] >= 10 else 10
            tens = group % 100
            if group % room or last == "zero" or word == "zero" and last or room == 10 and tens == 10:
                return None
            group += _SMALL[word]
        elif word == "hundred" and 0 <= group < 100:
            group = 100 * max(group, 1)
        elif word in SCALES and SCALES[word] < scale:
            scale = SCALES[word]
            total, group = total + max(group, 1) * scale, 0
        else:
            return None
        last = word
    return Fraction(total + group, 2 if words.lower().startswith("half") else 1)


@lru_cache(maxsize=65536)
def only(text: str) -> Number | None:
    """Return the number that a text is, without currency, %, degrees and brackets; None if it is none."""
    text = text.translate(PLAIN)
    numbers = [*find(text)]
    if len(numbers) != 1 or numbers[0].answer is None:
        return None
    around = text[: numbers[0].start] + text[numbers[0].end :]
    return None if around.strip("\\$€£%°(){}. \t\n") else numbers[0]


def value_of(text: str) -> Fraction | None:
    """Return the value of a text that is a number (:func:`only`)."""
    number = only(text)
    return number and number.value


def canonical(value: Fraction) -> str:
    """Return plain decimal text: exact if 30 decimals suffice, else 17 significant digits.

    >>> canonical(Fraction("18.0")), canonical(Fraction("-.5")), canonical(Fraction(1, 3))
    ('18', '-0.5', '0.33333333333333333')
    """
    exact = 10**30 % value.denominator == 0
    text = f"{Context(prec=4 * LONGEST if exact else 17).divide(value.numerator, value.denominator):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def equal(a: str, b: str, absolute: float, relative: float) -> bool:
    """Whether two numbers differ by at most ``absolute``, or ``relative`` times the larger magnitude."""
    x, y = value_of(a), value_of(b)
    if x is None or y is None:
        return False
    return abs(x - y) <= max(Fraction(str(absolute)), Fraction(str(relative)) * max(abs(x), abs(y)))
