r"""Numbers: finding them in a text, exact values, canonical text, and the one that a sentence gives.

A number is a word that matches one pattern as a whole: ``18``, ``-$1,234.50``, ``12%``, ``5km``,
``$18/hour``, ``3/4``, ``\frac{3}{4}``, ``3½``, ``1.5e3``, ``10^3``, and also ``3 1/2``, ``12 000``,
``3 \times 10^5`` and ``5 million``; or it is ``twelve`` or ``forty-two``. Any other word with a digit
(``2x``, ``5!``, ``6:30``, ``3*4``, ``2,5``, ``3rd``, ``$3bn``) is a number without a value. So is a number
beside a word or sign that changes it (``3 * 4``, ``2 dozen``, ``more than 5``).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Context
from fractions import Fraction
from functools import lru_cache

from soft_reasoning.answers.marks import PLAIN, Reading

LONGEST = 400
"""Longer texts are no numbers."""

_ONES = "one two three four five six seven eight nine".split()
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_WORDS = {word: n for n, word in enumerate(["zero", *_ONES, *_TEENS])}
_WORDS |= {word: 10 * n for n, word in enumerate(_TENS, 2)}
_WORDS |= {f"{ten}-{one}": _WORDS[ten] + _WORDS[one] for ten in _TENS for one in _ONES}
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_OPERATORS = set("+ - * / × x ÷ · ^ < > ≤ ≥ ≠ ± √".split())
_OPERATORS |= {f"\\{name}" for name in "times cdot div pm sqrt leq le geq ge neq lt gt".split()}
_PARTS = "half third quarter fourth fifth sixth seventh eighth ninth tenth hundredth thousandth".split()
_PARTS += [f"{part}s" for part in _PARTS]
_BEFORE = _OPERATORS | set("not than least most minus negative twice double".split())
_BEFORE |= {f"{part} of" for part in _PARTS}
"""Words before a number that change it, or compare with it."""
_AFTER = _OPERATORS | {"and a", "and an", "and half", "or more", "or less", "or fewer", "or so"}
_AFTER |= set("halves dozen dozens score gross lakh crore quadrillion mil k bn".split()) | {*_PARTS}
_FACTORS = ("π", "√", "\\pi", "\\sqrt", "\\frac")
"""Words after a number that change it, and their beginnings."""
_VULGAR = {
    ord(sign): f" {unicodedata.normalize('NFKC', sign)}".replace("⁄", "/") for sign in "¼½¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
}
_WORD = re.compile(
    rf"""[("'“\[{{~$]*(?:\\[(\[]|\\text\w*\{{)?(?P<number>(?P<sign>-?(?:US|\\)?[$€£¥₹]?|\\?[$€£¥₹]-)(?P<value>
        (?:\d+(?:\.\d+)?[ ]?(?:×|x|\\times|\\cdot)[ ]?)?10\^\{{?[-+]?\d\d?\}}?
        |(?:\d+[ ]?(?!\\\w+\{{-))?(?:\\[dt]?frac\{{-?\d+\}}\{{\d+\}}|[{"".join(map(chr, _VULGAR))}])
        |(?:\d+[ ])?\d+/\d+
        |(?:[1-9]\d{{0,2}}(?:(?:,\\!|\\?,|\{{,\}}|[ _])\d{{3}})+(?!\d)|\d+)
          (?:\.\d+)?(?:[eE][-+]?\d\d?)?|\.\d+))
      (?:\\?%|°[CF]?|\^\{{?\\circ\}}?|[ ]?(?:[kc]?m|ft|in)(?:[²³]|\^\{{?[23]\}}?)|[kcm]m|k[mg]/h|m/s²?
        |mph|[km]g|lbs?|oz|m[lL]|ft|hrs?|mins?|[€£¢])?(?:/[a-z]{{2,}})?
      (?:[.,;:)\]}}"'”*$]|\\(?:[)\],;]|(?=\s)))*(?:\\(?:text|mathrm|quad)\S*)?
      (?=[\s=≈→⇒]|-(?!and)[A-Za-z]{{3}}|$)
      |[=≈→⇒]|[^\s=≈→⇒]+""",
    re.VERBOSE,
)
"""A number, an equals sign, or another word."""
_AROUND = ".,;:!?()\"'”*"
"""Around a word that is compared with the sets above."""
_SEPARATOR = re.compile(r",\\!|\\?,|\{,\}|_| (?=\d{3}(?!\d*/))")
_FRACTION = re.compile(r"\\[dt]?frac\{(-?\d+)\}\{(\d+)\}")
_EQUALS = re.compile(r"(?<![<>!:])[=≈]|\\approx|[→⇒]|\b(?:equals|equal to|rounds (?:up |down )?to)\b")
_ASSIGNED = re.compile(r"(?<![\w\\])[A-Za-z]\s?=\s?[-$\d.]+")
_CONCLUDES = re.compile(r"\b(?:so|thus|therefore|hence|then|means|leaving)\b", re.IGNORECASE)
_BESIDE = re.compile(r"\b(?:or|and)\b|^[^A-Za-z]*$|^\s?to\b|,\s")
"""Between two numbers that are both meant: "3 hours and 45 minutes", "5 to 6"."""
_ASIDE = re.compile(r"(?<=[\w%.$}] )\([^()=\n]{1,200}\)")
_REFUSES = re.compile(
    r"\b(?:cannot|can not|unable to|impossible to|not possible to|(?:ca|could)n['’]t) (?:be )?"
    r"(?:answer|determin|calculat|solv|say|tell|know)|\bnot enough (?:information|data)",
    re.IGNORECASE,
)


def find(text: str) -> Iterator[Reading]:
    """Yield the numbers of ``text``; those without a value have no answer.

    >>> [number.answer for number in find("$1,200 a day, 3 1/2 or 5 million, but 2x, 2 dozen or 3 * 4")]
    ['1200', '3.5', '5000000', None, None, None, None]
    """
    matches = [*_WORD.finditer(text)]
    plain = [match.group().lower().strip(_AROUND + "-") or match.group() for match in matches]
    words = ["", "", *plain, "", ""]  # two more on both sides
    for n, match in enumerate(matches, 2):
        (start, end), last = match.span(), n
        if match["number"]:
            answer, (start, end) = _answer(match), match.span("number")
        elif words[n] in _WORDS:
            start += match.group().lower().index(words[n])
            answer, end = str(_WORDS[words[n]]), start + len(words[n])
        elif any(char.isdecimal() or ord(char) in _VULGAR for char in words[n]):
            answer = None
        else:
            continue
        while (scale := words[last + 1].rstrip("s")) in _SCALES:
            last += 1
            answer = answer and canonical(Fraction(answer) * _SCALES[scale])
            end = matches[last - 2].start() + len(matches[last - 2].group().rstrip(_AROUND))
        before, after = words[n - 2 : n], words[last + 1 : last + 3]
        changed = not _BEFORE.isdisjoint((before[1], " ".join(before)))
        changed |= not _AFTER.isdisjoint((after[0], " ".join(after))) or after[0].startswith(_FACTORS)
        yield Reading(None if changed else answer, start, end)


def _answer(number: re.Match[str]) -> str | None:
    """The canonical text of a number; a fraction stays as it is written."""
    if len(number["value"]) > LONGEST:
        return None
    plain = _SEPARATOR.sub("", _FRACTION.sub(r" \1/\2", number["value"])).translate(_VULGAR)
    factor, power, exponent = plain.partition("10^")
    if power:
        plain = f"{re.sub('[^0-9.]', '', factor) or 1}e{exponent.strip('{}')}"
    try:
        value = sum(map(Fraction, plain.split()), Fraction())
    except ZeroDivisionError:
        return None
    if "-" in number["sign"]:
        value = -value
    over, slash, under = plain.strip(" -").partition("/")
    if slash and " " not in over and value.denominator > 1:
        return f"{'-' if value < 0 else ''}{over}/{under}"
    return canonical(value)


def read(sentence: str, question: str, marked: bool) -> Reading | None:
    """The number that a sentence gives; None if it gives none, without an answer if it is ambiguous.

    A sentence has one value. In an equation the first number of the right side counts, and without a mark the
    number after "so" or "means". Numbers in words count only after a mark or in an equation.

    >>> [read(text, "", False).answer for text in ("So 3 * 6 = 18 eggs", "3 cost $2, so he pays 6", "3 to 4")]
    ['18', '6', None]
    """
    if _REFUSES.search(sentence):
        return Reading(None)
    bare = _ASIDE.sub(lambda aside: " " * len(aside.group()), sentence)
    numbers = [*find(bare)] or [*find(sentence)]
    if not numbers:
        return None
    equation = _EQUALS.search(bare, 0, numbers[-1].start)
    if marked and not equation and len(bare[: numbers[0].start].split()) > 2:
        return None
    if equation or not marked:
        ends = (_EQUALS if equation else _CONCLUDES).finditer(bare, 0, numbers[-1].start)
        begin = max((match.end() for match in ends), default=0)
        numbers = [number for number in numbers if number.start >= begin]
    first, several = numbers[0], len({number.answer for number in numbers}) > 1
    beside = several and (not equation or _BESIDE.search(bare[first.end : numbers[1].start]))
    in_words = not any(map(str.isnumeric, bare[first.start : first.end]))
    unclear = beside or in_words and not (marked or equation) or len(_ASSIGNED.findall(bare)) > 1
    return Reading(None) if unclear else first


@lru_cache(maxsize=65536)
def only(text: str) -> Reading | None:
    """Return the number that a text is, without currency, %, degrees and brackets; None if it is none."""
    text = text.translate(PLAIN)
    numbers = [*find(text)] if len(text) <= LONGEST else []
    if len(numbers) != 1 or numbers[0].answer is None:
        return None
    around = text[: numbers[0].start] + text[numbers[0].end :]
    return None if around.strip("\\$€£%°(){}. \t\n") else numbers[0]


def value_of(text: str) -> Fraction | None:
    """Return the value of a text that is a number (:func:`only`)."""
    number = only(text)
    return None if number is None or number.answer is None else Fraction(number.answer)


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
