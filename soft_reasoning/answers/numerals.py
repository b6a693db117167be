r"""Numbers in running text: bring their spelling to one form, find them, write them one way.

Values are exact (:class:`fractions.Fraction`), so ``1/3``, ``.5``, ``18.``, ``1,234,567``, ``1 000 000``,
``1 1/2``, ``\frac{3}{4}``, ``1.5e6``, ``3 \times 10^{-2}``, ``−7``, ``5 million``, ``$5M`` and ``1.234,50 €``
are read without rounding.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context
from fractions import Fraction
from functools import lru_cache

from soft_reasoning.answers.reader import Rewriter, any_of, beyond_ascii, having

MAX_EXPONENT = 400
"""Powers of ten beyond this, and digit strings longer than this, are not answers and are not computed."""

CLOCK = "\ue001"
"""Stands for the colon of "6:45"."""

UNSURE = "\ue000"
"""Stands for a mark between digits that may mean several things: a number that holds it has no value."""

_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12,
           "lakh": 10**5, "crore": 10**7}  # fmt: skip
_LETTERS = {"k": 10**3, "m": 10**6, "b": 10**9, "bn": 10**9}
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
    (?P<currency>(?:{_CURRENCY}\s?){{1,3}})?
    (?P<inner>[-+])?
    (?P<digits>{_PLAIN})
    (?:
        (?:\s?[×x*·⋅]\s?10\s?\^\s?|[eE](?=[-+]?\d+(?![A-Za-z\d])))(?P<exponent>[-+]?\d+)
      | \^(?P<power>[-+]?\d+)
      | (?:\s|\s?(?:and|&)\s|-(?=\d+/\d+(?![\d/]|\s?[-+*x×÷=])))(?P<top>\d+)\s?/\s?(?P<bottom>\d+)
      | \s?/\s?(?P<dsign>-)?(?P<divisor>{_PLAIN})
    )?
    (?:\s?(?P<scale>{"|".join(_SCALES)})\b|(?P<letter>[kK](?![\w'’])|(?-i:M|B|bn)\b)(?P<money>(?=\s(?:dollars|euros|pounds)\b))?)?
    (?P<irrational>\s?(?:\\sqrt|√|\\pi\b|π|{_UNREAD})|[{UNSURE}{CLOCK}]\d+|(?-i:[xyzn])(?![\w'’]|\s?\d)
      |(?-i:[a-z])(?=\s?[-+]\s?\d+(?!\s?\w|\.\d)))?
  | {_UNREAD}""",
    re.VERBOSE | re.IGNORECASE,
)
_CLOCK = r"(?<![\d:])(\d{1,2}):(?=[0-5]\d(?![\d:]))"
_GROUPS_THEN_COMMA = re.compile(
    r"(?<![\d.,])\d{1,3}(?:(?:\.\d{3})+,\d+(?![\d,.]\d)|(?:[ \u00a0]\d{3})+,\d{1,2}(?![\d,]))"
)
_COMMA = re.compile(r"(?<![\d.,])(\d+),(\d+)(?!\d|[.,]\d)")
_DOT_OF_THREE = re.compile(r"(?<![\d.,])([1-9]\d{0,2})\.(\d{3})(?![\d,.]\d|\d)")
_DOTTED = re.compile(
    r"\b(?:Antwort|Ergebnis|Lösung|lautet|beträgt|ist|sind|und|nicht|insgesamt"
    r"|[Rr]espuesta|[Rr]esultado|[Ss]olución|es|por|quedan|cuesta)\b"
)
"""Words of German and Spanish, where a dot may set thousands apart."""
_UNDOTTED = re.compile(r"\b(?:[Rr]éponse|[Rr]ésultat|donc|est|sont)\b|[а-яё]{2}")
"""Words of French and Russian."""


def with_points(text: str) -> str:
    """``text`` of the same length with decimal points, where it has decimal commas.

    A comma is a decimal one in "0,5", in "1.234,5" and "1 234,5" (narrow spaces), and wherever words show
    that the language is German, French, Spanish or Russian. Elsewhere "3,5" is unsure, as is "1,500" there.
    """
    if "," not in text and "." not in text:
        return text
    text = _GROUPS_THEN_COMMA.sub(_continental, text)
    dotted = _DOTTED.search(text) is not None
    local = dotted or _UNDOTTED.search(text) is not None
    text = _COMMA.sub(lambda matched: f"{matched[1]}{_meaning(matched, local)}{matched[2]}", text)
    if dotted:  # "1.200" is 1200, but "3.142" may be a habit from English
        text = _DOT_OF_THREE.sub(lambda m: f"{m[1]}{',' if m[2].endswith('0') else UNSURE}{m[2]}", text)
    return text


def _meaning(matched: re.Match[str], local: bool) -> str:
    """What the comma between two numbers is: ".", "," or unsure."""
    whole, part = matched[1], matched[2]
    before = matched.string[max(0, matched.start() - 1) : matched.start()]
    if before and before in "([{" and not local:  # a pair of coordinates
        return ","
    if whole == "0":
        return "."
    if len(part) == 3 and len(whole) <= 3:
        return UNSURE if local else ","
    if local:
        return "."
    euros = before == "€" or matched.string[matched.end() : matched.end() + 4].lstrip().startswith(
        ("€", "EUR")
    )
    return UNSURE if len(part) < 3 and not euros else ","


_SPACED = re.compile(
    r"(?:(?<![\d.,])\d{1,3}(?: \d{3}){2,}|(?<![\d.,])\d{1,3} 0\d{2}(?! \d)|(?<=[$€£¥₹])\d{1,3} \d{3}"
    r"|^[^\w\n]{0,9}\d{1,3} \d{3}(?=(?:\.\d+)?[^\w\n]{0,9}$))(?![\d/])",
    re.MULTILINE,
)
_SPACED_UNIT = re.compile(r"(?:^|(?<=:))[^\w\n]{0,9}\d{1,3} \d{3}(?= [^\W\d_]+[^\w\n]{0,9}$)", re.MULTILINE)
"""Thousands between spaces. "3 400 m races" are two numbers, so one group alone needs a currency before it or
the line to itself, a unit apart."""


def _with_commas(found: re.Match[str]) -> str:
    return re.sub(r"(?<=\d)[ .'’_](?=\d)", ",", found.group())


def _continental(found: re.Match[str]) -> str:
    """``1.234,50`` as ``1,234.50``."""
    return found.group().translate({ord("."): ",", ord(","): ".", ord(" "): ",", 0xA0: ","})


_LATEX = having("\\")
clean: Rewriter = Rewriter(
    (r"[\u200b-\u200d\u2060\ufeff]", "", beyond_ascii),
    (r"<<[^<>=]{0,200}=[^<>]{0,200}>>", "", having("<<")),
    (_CLOCK, rf"\1{CLOCK}", having(":")),
    (r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))", ",", beyond_ascii),
    (r"(?<=\d)[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda found: "^" + found.group().translate(_SUPERSCRIPTS), beyond_ascii),
    (r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]", "", beyond_ascii),
    (r"\s?([¼-¾⅐-⅞])", lambda found: " " + unicodedata.normalize("NFKC", found[1]), beyond_ascii),
    (r"[⁄−‐‑–﹣]", lambda found: "/" if found.group() == "⁄" else "-", beyond_ascii),
    # LaTeX and markdown
    (r"(?<=\d)\{,\}\s?(?=\d{3})", ",", having("{,}")),
    (r"(?<=\d),?\\[,!;: ]\s?(?=\d{3})", ",", _LATEX),
    (_SPACED_UNIT, _with_commas),
    (r"(?<=[-\d])~(?=\d)", " ", having("~")),
    (r"\\(?:text|mathrm|mathbf|textbf)\s?\{([^{}]*)\}", r" \1 ", _LATEX),
    (r"\\[cdt]frac|\\frac", r"\\frac", _LATEX),
    (r"\\frac\s?(\d)\s?(\d)", r"\\frac{\1}{\2}", _LATEX),
    (r"(?<=\d)\s?(?=\\frac)", " ", _LATEX),
    (r"\\frac\s?\{\s?([-\d.,]+)\s?\}\s?\{\s?([-\d.,]+)\s?\}", r"\1/\2", _LATEX),
    (r"\\(?:times|cdot)(?![A-Za-z])\s?", "×", _LATEX),
    (r"\\div", "÷", _LATEX),
    (r"\\(?:left|right)(?![A-Za-z])|\\[()\[\],!;: ]", " ", _LATEX),
    (r"\\([$%€£])", r"\1", _LATEX),
    (r"\\approx", "≈", _LATEX),
    (r"\^\\circ", "°", _LATEX),
    (r"(?<=\d)\*\*(?=[-+]?\d)", "^", having("**")),
    (r"\*\*", "", having("**")),
    (r"`", "", having("`")),
    (r"\^\s?\{\s?([-+]?\d+)\s?\}", r"^\1", having("^")),
    # digits in groups, and the comma as a decimal point
    (r"(?<![\d.,])\d{1,3}(?:['’]\d{3})+(?![\d'’])", _with_commas),
    (r"(?<![\d.,])\d{1,3}(?:_\d{3})+(?![\d_])", _with_commas, having("_")),
    (r"(?<![\d.,])\d{1,3}(?:\.\d{3}){2,}(?!\d|\.\d{3}\b|,\d)", _with_commas),
    (r"(?<![\d.,])\d+,\d{2}(?=\s?(?:€|EUR\b))|(?<=€)\d+,\d{2}(?![\d,])", _continental, having(",")),
    (_SPACED, _with_commas),
)
r"""The text with typography and LaTeX reduced to what the number grammar knows.

>>> clean("−\\frac{3}{4} ≈ 1\u202f000½")
'-3/4 ≈ 1,000 1/2'
"""


@dataclass(frozen=True)
class Number:
    """A number at ``text[start:end]``.

    ``value`` is None if it cannot be computed (``5/0``). ``digits`` is where its digits begin, after sign
    and currency.
    """

    value: Fraction | None
    start: int
    end: int
    digits: int

    @property
    def fraction(self) -> bool:
        """Whether the value is no finite decimal, so that text may add a rounded one."""
        return self.value is not None and (10**30 % self.value.denominator) != 0


def find(text: str) -> Iterator[Number]:
    """Yield the numbers of a cleaned ``text`` in order; digits inside words (``H2O``) do not count."""
    position = 0
    while found := _NUMBER.search(text, position):
        value, end = _value(found)
        negative = _negative(text, found)
        if value is not None and negative:
            value = -value
        digits = found.start("digits") if found["digits"] else found.start()
        yield Number(value, found.start(), end, found.start() if negative else digits)
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
    if letter := found["letter"]:
        if letter not in "kK" and not (
            found["currency"] or found["money"] is not None
        ):  # "5 M" may be anything
            return None, end
        return value * _LETTERS[letter.lower()], end
    return value * _SCALES.get((found["scale"] or "").lower(), 1), end


def _negative(text: str, found: re.Match[str]) -> bool:
    """Whether the signs of a match make it negative rather than subtract it or mark a list item."""
    if found["word"] or found["inner"] == "-":
        return True
    sign = found["sign"] or ""
    if not sign.startswith("-"):
        return False
    before = found.start() - 1
    while before >= 0 and text[before] in " \t":
        before -= 1
    last = text[before] if before >= 0 else ""
    if sign == "-":
        joined = before == found.start() - 1 and last.isalpha()
        return not (joined or last.isdigit() or last in (")", "%", "]"))
    # "= - 5" is negative, and "- 5" that opens the text; "5 cats - 3 cats" is not, nor a later line's "- 5".
    return last in ":=≈({[$" if last and last != "\n" else not last


@lru_cache(maxsize=65536)
def whole_value(text: str) -> Fraction | None:
    """Return the value of a text that is one number, apart from currency, %, degrees and brackets."""
    text = clean(text)
    numbers = list(find(text))
    if len(numbers) != 1:
        return None
    around = text[: numbers[0].start] + text[numbers[0].end :]
    return None if around.strip("$%°(){}. \t\n") else numbers[0].value


def canonical(value: Fraction) -> str:
    """Return plain decimal text: exact if 30 decimals suffice, else 17 significant digits.

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


_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_VALUES = {word: i for i, word in enumerate(_SMALL)} | {word: 10 * i for i, word in enumerate(_TENS, start=2)}
_WORD_SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "tenth": 10}

_WORD = "|".join([*_VALUES, *_WORD_SCALES])
_A = rf"an?(?=[\s-](?:{'|'.join([*_WORD_SCALES, *_PARTS])})\b)"
_PART = rf"(?:{'|'.join(_PARTS)})(?:s|ves)?"
_NOTHING = r"(?:none|nothing)(?=\sleft\b)|no\s(?:more\s)?[a-z]+\s(?:(?:is|are)\s)?(?:left|remain(?:s|ing)?)"
_PHRASE = re.compile(
    rf"(?<![\w-])(?:(?P<minus>minus|negative)\s)?(?:"
    rf"(?P<half>half)(?:\sof)?\sa\s(?P<scale>{'|'.join(_WORD_SCALES)})"
    rf"|(?P<count>(?:(?:{_WORD})\b|{_A})(?:(?:[\s-]|\sand\s)(?:{_WORD})\b){{0,9}})"
    rf"(?:(?P<and>\sand)?(?:\s(?:a|one))?[\s-](?P<part>{_PART})\b)?"
    rf"|(?P<alone>half|{_NOTHING}|none(?!\sof\b)))(?!\w)",
    re.IGNORECASE,
)
_BEFORE_ONE = re.compile(r"\W*(?:(?:just|only|exactly|about)\W+)?", re.IGNORECASE)
_NO_COUNT = re.compile(
    rf"\b{any_of('no, any, some, every, each, this, that, another, which, the, last, first')}\s$",
    re.IGNORECASE,
)


def find_words(text: str, begin: int = 0) -> tuple[Fraction, int, int] | None:
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
        value = _worded(found)
        return (-value if found["minus"] else value), found.start(), found.end()
    return None


def _worded(found: re.Match[str]) -> Fraction:
    if found["half"]:
        return Fraction(_WORD_SCALES[found["scale"].lower()], 2)
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
            current = max(current, 1) * _WORD_SCALES[word]
        elif word in _WORD_SCALES:
            total, current = total + max(current, 1) * _WORD_SCALES[word], 0
    return total + current
