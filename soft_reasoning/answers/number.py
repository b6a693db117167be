r"""Numbers: reading the one in a statement, exact values, canonical text.

A number has an optional sign and currency; digits with thousands commas, a decimal point, a fraction, a mixed
number or a power of ten; a scale word (thousand to trillion); and a unit, such as %. In an equation the
right-hand side counts. A statement with two values has no answer: a list, a tuple, a range, an inequality,
5 ± 1, 5!, 2x, 6:30. So has "2,5", which is a pair or a decimal comma.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Context
from fractions import Fraction
from functools import lru_cache

from soft_reasoning.answers.statement import REFUSES, Reading

LONGEST = 400
"""Numbers of more characters, and powers of ten beyond this, are not answers and are not computed."""

_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_COMMA = r"(?:\\?,|\{,\}|,?\\!)"
_DIGITS = rf"(?:[1-9]\d{{0,2}}(?:{_COMMA}\d{{3}})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
_NUMBER = re.compile(
    rf"""(?P<sign>\b(?:minus|negative)\s|[-−]\s?)?(?P<currency>(?:US|\\)?[$€£¥₹]\s?)?(?P<inner>[-−])?
    (?P<value>(?:(?P<whole>\d+)\s?)?
        \\[cdt]?frac\s?(?:\{{\s?(?P<a>\d+)\s?\}}\s?\{{\s?(?P<b>\d+)\s?\}}|(?P<c>\d)\s?(?P<d>\d))
      |(?P<digits>{_DIGITS})(?:\s(?P<over>\d+)/(?P<under>\d+)|\s?/\s?(?P<divisor>\d+)
        |(?:\s?(?:[×x*]|\\times|\\cdot)\s?10\^|e)\{{?(?P<power>[-−+]?\d+)\}}?)?)
    (?:\s(?P<scale>{"|".join(_SCALES)})\b)?""",
    re.VERBOSE | re.IGNORECASE,
)
_WITHIN = re.compile(r"[A-Za-z0-9_^.]$|[_^]\{$")
"""Before digits of a word or an exponent: H2O, cm^2."""
_BOUND = re.compile(
    r"(?:[±√<>≤≥≠]|\\(?:pm|mp|sqrt\{?|[cdt]?frac\s?\{?|l[et]q?|g[et]q?|neq?)|\}\s?\{|(?<![A-Za-z])[A-Za-z]\s?\+"
    r"|\b(?:not|than|half of|twice|double))\s?$"
)
"""Before a number that is not the value: ± 5, √5, < 5, x + 5, not 5, and in a fraction of something else."""
_TERM = re.compile(r"[\w)}%](?P<space>\s?)$")
"""Before a minus that subtracts: x-5, x - 5."""
_MORE = re.compile(
    r"[!\d²³]|\^(?!\{?\\circ)|[.,:]\d|[A-Za-z](?![A-Za-z'’])|\s?(?:[√π±≤≥≠]|\\(?:sqrt|pi|pm|frac|[lgn]eq?\b|[lg]t\b))"
    r"|\s[<>]\s|\s?[-−+*]\s?(?![aI]\s[a-z])[A-Za-z](?![A-Za-z'’])"
    r"|\s?(?:[-+*x×·÷/–]|\\(?:times|cdot|div))\s?[\\$(]{0,2}\d|\+(?!\s)|\sor (?:more|less|fewer)\b"
)
"""After a number that is not the value: 5!, 2^5, 2,5, 6:30, 2x, 2√3, 5 < x, 5 - x, 5-7, 3 * 4."""
_ORDINAL = re.compile(r"(?:st|nd|rd|th)\b")
_EQUALS = re.compile(r"(?<![<>!:])[=≈]|\\approx")
_ASSIGNED = re.compile(r"(?<![\w\\])[A-Za-z]\s?=\s?[-−$\d.]+")
_BESIDE = re.compile(r"\b(?:or|and)\b|^[^A-Za-z]*$|^\s?to\b")
"""Between two numbers that are both meant."""
_IS = re.compile(
    r"\b(?:is|are|was|were|be|equals)\s(?:(?:about|approximately|exactly|only|just)\s)?[-−\\$€£¥₹(]{0,3}$",
    re.IGNORECASE,
)
"""Before the value that a sentence gives."""
_SHARE = re.compile(r"%?\s(?:of|out of|times|more|less|fewer)\b")
"""After a number that is compared with something."""
_ASIDE = re.compile(r"(?<=[\w%.$}] )\([^()\n]{1,200}\)")


def find(text: str) -> Iterator[Reading]:
    """Yield the numbers of ``text``; those that are parts of something else (2x, 5/0) have no answer."""
    for match in _NUMBER.finditer(text):
        start = match.start("value")
        before, after = text[max(0, match.start() - 12) : match.start()], text[match.end() :][:16]
        if _WITHIN.search(text, max(0, start - 2), start) or _ORDINAL.match(after):
            continue
        sign = "inner" if match["inner"] else "sign" if match["sign"] else None
        value = (
            None
            if _subtracts(match["sign"] or "", before) or _BOUND.search(before) or _MORE.match(after)
            else _value(match)
        )
        answer = None if value is None else canonical(-value if sign else value)
        yield Reading(answer, match.start(sign or "value"), match.end())


def _subtracts(sign: str, before: str) -> bool:
    """Whether the minus after ``before`` is an operator: x-5, x - 5; in "is -5" it is a sign."""
    term = _TERM.search(before) if sign[:1] in ("-", "−") else None
    return term is not None and (not term["space"] or sign.endswith(" "))


def _value(match: re.Match[str]) -> Fraction | None:
    """The value of a number without its sign; None where it cannot be computed."""
    if len(match.group()) > LONGEST:
        return None
    over, under = match["a"] or match["c"] or match["over"] or "0", match["b"] or match["d"] or match["under"]
    power = int((match["power"] or "0").replace("−", "-"))
    divisors = int(under or 1), int(match["divisor"] or 1)
    if abs(power) > LONGEST or 0 in divisors:
        return None
    value = Fraction(re.sub(_COMMA, "", match["digits"] or match["whole"] or "0"))
    value = (value + Fraction(int(over), divisors[0])) / divisors[1] * Fraction(10) ** power
    return value * _SCALES.get((match["scale"] or "").lower(), 1)


def read(statement: str, question: str = "") -> Reading | None:
    """The number that a statement gives; None if it holds none, without an answer if it is ambiguous."""
    if REFUSES.search(statement):
        return Reading(None)
    plain = _ASIDE.sub(lambda aside: " " * len(aside.group()), statement)
    numbers = [*find(plain)] or [*find(statement)]
    right = max((equals.end() for equals in _EQUALS.finditer(plain)), default=0)
    result = [number for number in numbers if number.start >= right]
    if right and result and len(_ASSIGNED.findall(plain)) < 2:  # "x = 3, y = 4" has two values
        gap = plain[result[0].end : result[1].start] if len(result) > 1 else ""
        numbers = result if _BESIDE.search(gap) else result[:1]  # "= 6 minutes for 20 pages" has one
    if not numbers:
        return None
    if len({number.answer for number in numbers}) == 1:
        return numbers[0]
    *_, last = numbers  # "the cost of 490 meters is $2" has one value, although it holds two numbers
    told = [number for number in numbers if _IS.search(plain[max(0, number.start - 24) : number.start])]
    return last if told == [last] and not _SHARE.match(plain, last.end) else Reading(None)


@lru_cache(maxsize=65536)
def value_of(text: str) -> Fraction | None:
    """Return the value of a text that is a single number, apart from currency, %, degrees and brackets."""
    numbers = [*find(text)]
    if len(numbers) != 1 or numbers[0].answer is None:
        return None
    around = text[: numbers[0].start] + text[numbers[0].end :]
    return None if around.strip("\\$€£%°(){}. \t\n") else Fraction(numbers[0].answer)


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
