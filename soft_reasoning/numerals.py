r"""Numbers in running text: find them, choose the one that is meant, write them one way.

Values are exact (:class:`fractions.Fraction`), so ``1/3``, ``.5``, ``18.``, ``1,234,567``, ``1 000 000``,
``1 1/2``, ``\frac{3}{4}``, ``1.5e6``, ``3 \times 10^{-2}``, ``−7`` and ``5 million`` are read without
rounding.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context
from fractions import Fraction
from functools import lru_cache

MAX_EXPONENT = 400
"""Powers of ten beyond this, and digit strings longer than this, are not answers and are not computed."""

_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_PLAIN = r"(?:(?:\d{1,3}(?:,\d{3})+|\d{1,2}(?:,\d{2})+,\d{3})(?!\d)|\d+)(?:\.\d+)?|(?<![.\d])\.\d+"
_CURRENCY = r"(?:US\$|[$€£¥₹]|USD|EUR|GBP|Rs\.?)"


def _arguments(character: str) -> str:
    """Two arguments in braces that nest three deep at most, of what ``character`` matches."""
    inner = rf"\{{(?:{character}|\{{{character}*\}})*\}}"
    return rf"(?:\s*\{{(?:{character}|{inner})*\}}){{2}}"


_UNREAD = r"\\frac(?!" + _arguments(r"[^{}\d]") + ")(?:" + _arguments(r"[^{}]") + ")?"
"""A fraction of more than two plain numbers has no value; one without digits is no number."""

_NUMBER = re.compile(
    rf"""(?<![A-Za-z0-9_√])(?<!\\sqrt\{{)(?<!\\sqrt\s)
    (?:(?P<word>minus|negative)\s+)?
    (?P<sign>[-+]\s?)?
    (?:{_CURRENCY}\s?){{0,3}}
    (?P<inner>[-+])?
    (?P<digits>{_PLAIN})
    (?:
        (?:\s?[×x*·⋅]\s?10\s?\^\s?|[eE](?=[-+]?\d+(?![A-Za-z\d])))(?P<exponent>[-+]?\d+)
      | \^(?P<power>[-+]?\d+)
      | (?:\s|\sand\s)(?P<top>\d+)\s?/\s?(?P<bottom>\d+)
      | \s?/\s?(?P<dsign>-)?(?P<divisor>{_PLAIN})
    )?
    (?:\s?(?P<scale>{"|".join(_SCALES)})\b)?
    (?P<irrational>\s?(?:\\sqrt|√|\\pi\b|π|{_UNREAD}))?
  | {_UNREAD}""",
    re.VERBOSE | re.IGNORECASE,
)
_CLAUSE_END = re.compile(
    r"[.!?](?=\s|[A-Z]|$)|[;\n]|,(?=\s)|\((?=[a-z])"
    r"|\b(?:because|since|so|where|which|but|if|when|after|as|therefore|thus)\b"
)
_SPACED = re.compile(
    r"(?:(?<![\d.,])\d{1,3}(?: \d{3}){2,}|(?<=[$€£¥₹])\d{1,3} \d{3}"
    r"|^[^\w\n]*\d{1,3} \d{3}(?=(?:\.\d+)?[^\w\n]*$))(?![\d/])",
    re.MULTILINE,
)
"""Thousands between spaces. "3 400 m races" are two numbers, so one group alone needs a currency before it or
the line to itself."""
_EQUALS = re.compile(r"[=≈≡]+>?")
_OPERATOR = re.compile(r"(?<=[\d\w)%\s])\s*[-+*×·⋅÷/]\s*\W?\d")


@dataclass(frozen=True)
class Number:
    """A number at ``text[start:end]``; ``value`` is None for one that cannot be computed (``5/0``)."""

    value: Fraction | None
    start: int
    end: int


def clean(text: str) -> str:
    r"""The text with typography and LaTeX reduced to what the number grammar knows.

    >>> clean("−\\frac{3}{4} ≈ 1\u202f000½")
    '-3/4 ≈ 1,000 1/2'
    """
    text = re.sub(r"[\u200b-\u200d\u2060\ufeff]|<<[^<>]*>>", "", text)
    text = re.sub(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))", ",", text)
    text = re.sub(
        r"(?<=\d)[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda found: "^" + found.group().translate(_SUPERSCRIPTS), text
    )
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]", "", text)
    text = re.sub(r"[¼-¾⅐-⅞]", lambda found: " " + unicodedata.normalize("NFKC", found.group()), text)
    text = unicodedata.normalize("NFKC", text).replace("⁄", "/")
    text = re.sub(r"[−‐‑–﹣]", "-", text)
    return _SPACED.sub(lambda found: re.sub(r"(?<=\d) (?=\d)", ",", found.group()), _without_latex(text))


def _without_latex(text: str) -> str:
    """LaTeX markup and markdown emphasis removed, fractions and powers in ASCII."""
    text = re.sub(r"(?<=\d)(?:\{,\}|,?\\[,!;: ])\s?(?=\d{3})", ",", text)
    text = re.sub(r"(?<=[-\d])~(?=\d)", " ", text)
    text = re.sub(r"\\(?:text|mathrm|mathbf|textbf)\s*\{([^{}]*)\}", r" \1 ", text)
    text = re.sub(r"\\[cdt]frac|\\frac", r"\\frac", text)
    text = re.sub(r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"(?<=\d)\s*(?=\\frac)", " ", text)
    text = re.sub(r"\\frac\s*\{\s*([-\d.,]+)\s*\}\s*\{\s*([-\d.,]+)\s*\}", r"\1/\2", text)
    text = re.sub(r"\\(?:times|cdot)(?![A-Za-z])\s?", "×", text).replace("\\div", "÷")
    text = re.sub(r"\\(?:left|right)(?![A-Za-z])|\\[()\[\],!;: ]", " ", text)
    text = re.sub(r"\\([$%€£])", r"\1", text).replace("\\approx", "≈").replace("^\\circ", "°")
    text = re.sub(r"(?<=\d)\*\*(?=[-+]?\d)", "^", text).replace("**", "").replace("`", "")
    return re.sub(r"\^\s?\{\s*([-+]?\d+)\s*\}", r"^\1", text)


def find(text: str) -> Iterator[Number]:
    """Every number of a cleaned ``text``, from left to right; digits inside words (``H2O``) are none."""
    position = 0
    while found := _NUMBER.search(text, position):
        value, end = _value(found)
        if value is not None and _negative(text, found):
            value = -value
        yield Number(value, found.start(), end)
        position = end


def _value(found: re.Match[str]) -> tuple[Fraction | None, int]:
    """The unsigned value of a match and where it ends (before an improper "mixed" part)."""
    if not found["digits"]:
        return None, found.end()
    digits = found["digits"].replace(",", "")
    if len(digits) > MAX_EXPONENT or found["irrational"]:
        return None, found.end()
    value, end = Fraction(digits), found.end()
    if found["bottom"]:
        top, bottom = found["top"], found["bottom"]
        if max(len(top), len(bottom)) > MAX_EXPONENT:
            return None, end
        if "." in digits or 0 < int(bottom) <= int(top):
            return value, found.end("digits")  # "3 12/4" is two numbers, not a mixed one
        if int(bottom) == 0:
            return None, end
        value += Fraction(int(top), int(bottom))
    elif found["divisor"]:
        divisor = found["divisor"].replace(",", "")
        if len(divisor) > MAX_EXPONENT or not Fraction(divisor):
            return None, end
        value /= Fraction(divisor) * (-1 if found["dsign"] else 1)
    elif exponent := found["exponent"]:
        if len(exponent) > 5 or abs(int(exponent)) > MAX_EXPONENT:
            return None, end
        value *= Fraction(10) ** int(exponent)
    elif power := found["power"]:
        if len(power) > 5 or abs(int(power)) * len(digits) > MAX_EXPONENT or (not value and int(power) < 0):
            return None, end
        value **= int(power)
    return value * _SCALES.get((found["scale"] or "").lower(), 1), end


def _negative(text: str, found: re.Match[str]) -> bool:
    """Whether the signs of a match make it negative, rather than subtract it or mark a list item."""
    if found["word"] or found["inner"] == "-":
        return True
    sign = found["sign"] or ""
    if not sign.startswith("-"):
        return False
    line = text[: found.start()].rpartition("\n")[2]
    before = line.rstrip()
    if sign == "-":
        joined = before == line and before[-1:].isalpha()
        return not (joined or before[-1:].isdigit() or before[-1:] in (")", "%", "]"))
    # "= - 5" is negative, and "- 5" that opens the text; "5 cats - 3 cats" is not, nor a later line's "- 5".
    return before[-1] in ":=≈({[$" if before else "\n" not in text[: found.start()]


def first(text: str) -> Number | None:
    """The number that a cleaned ``text`` states first: the last plain one of its chain of equalities.

    >>> first("10 - 5 = 5, as 3 + 2 = 5").start, first("20 eggs, since 4 * 5 = 20").start
    (9, 0)
    """
    numbers = list(find(text))
    if not numbers:
        return None
    end = len(text)
    for boundary in _CLAUSE_END.finditer(text, numbers[0].end):
        if not any(number.start < boundary.start() < number.end for number in numbers):
            end = boundary.start()
            break
    start, chain = numbers[0].start, []
    for equals in [*_EQUALS.finditer(text, start, end), None]:
        stop = equals.start() if equals else end
        inside = [number for number in numbers if start <= number.start and number.end <= stop]
        if inside:
            unread = text.startswith("\\frac", inside[0].start)  # its operators stand inside it
            rest = inside[0].start if unread else inside[0].end
            chain.append((inside[0], bool(_OPERATOR.search(text, rest, stop))))
        start = equals.end() if equals else end
    plain = [number for number, expression in chain if not expression]
    return (plain or [number for number, _ in chain] or numbers)[-1 if plain else 0]


def last_value(text: str) -> Fraction | None:
    """The last number of a cleaned ``text``, which may open with a list item ("- 5 eggs")."""
    value = None
    for number in find(f"\n{text}"):
        value = number.value
    return value


@lru_cache(maxsize=65536)
def whole_value(text: str) -> Fraction | None:
    """The value of a text that is one number and nothing else (currency, %, degrees and brackets apart)."""
    text = clean(text)
    numbers = list(find(text))
    if len(numbers) != 1:
        return None
    around = text[: numbers[0].start] + text[numbers[0].end :]
    return None if around.strip("$%°(){}. \t\n") else numbers[0].value


def canonical(value: Fraction) -> str:
    """Plain decimal text: exact where 30 digits after the point suffice, else 17 significant digits.

    >>> canonical(Fraction("18.0")), canonical(Fraction("-.5")), canonical(Fraction(1, 3))
    ('18', '-0.5', '0.33333333333333333')
    """
    if value.denominator == 1:
        return str(value.numerator)
    scaled = value * 10**30
    if scaled.denominator == 1:
        digits = f"{abs(scaled.numerator):031d}"
        text = f"{digits[:-30]}.{digits[-30:]}".rstrip("0")
        return f"-{text}" if value < 0 else text
    rounded = Context(prec=17).divide(value.numerator, value.denominator)
    text = f"{rounded:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
