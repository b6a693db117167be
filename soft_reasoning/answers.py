r"""Answers: taken out of free text, compared, voted on, graded. Pure functions.

An answer is canonical text: a number as plain decimal (``18`` for ``18``, ``18.`` and ``18.0``), a boolean as
``True`` or ``False``, a choice as its letter, LaTeX and text stripped. ``None`` means that none was found.

>>> extract("16 - 3 - 4 = 9 eggs, 9 * 2 = $18. Answer: $18.00", "number")
'18'
>>> equal("18.0", "18", "number"), vote(["7", "18", None, "18.0"], "number")
(True, '18')
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

from soft_reasoning import latex, numerals
from soft_reasoning.types import Problem, UserError

ANSWER_TYPES = ("number", "boolean", "choice", "latex", "text")
MODES = ("flexible", "strict")

_STRICT = re.compile(r"(?<![A-Za-z])Answer:[ \t]*([^\n]*)")
# Not anywhere in lower case: "2 points for each wrong answer: 3 * 2" is reasoning.
_MARKER = re.compile(
    r"(?:(?<![A-Za-z])(?:Answer|ANSWER)|(?:^|[.!?]\s)\W*answer"
    r"|\b(?i:the|my|our|final)\s+(?:(?i:final|correct)\s+)?answer)"
    r"\s*(?:\*\*|__)?\s*:\s*(?:\*\*|__)?[ \t]*",
    re.MULTILINE,
)
_PHRASE = re.compile(r"\banswer\s+(?:is|equals|=|would be|must be)\s*:?[ \t]*", re.IGNORECASE)
_HASHES = re.compile(r"####[ \t]*")
_RESTATED = re.compile(r"(?<=\S)\s*(?<![A-Za-z])(?:Question|QUESTION|Problem|PROBLEM)\s*\d*\s*:|\n\s*Q\s*:")
_REFUSAL = re.compile(
    r"\b(?:can(?:not|['’]?t| not)|could(?: not|n['’]t)|unable to|impossible to)\s+(?:be\s+)?"
    r"(?:answer|determin|calculat|comput|solv|find|say|know|tell|provid|help|assist|conclu)\w*"
    r"|\b(?:do not|don['’]t) know\b|\b(?:not enough|insufficient) (?:information|data|context)\b"
    r"|\bunknown\b|\bundefined\b|\bundetermined\b|\bindeterminate\b|\bn/a\b|\bnone of the\b|\bno answer\b",
    re.IGNORECASE,
)
_ITEM = re.compile(r"-[ \t]+")
_WORD = re.compile(r"\w")
_TEXT_END = re.compile(  # after "Vitamin C. It is", not in "St. Louis" or "J. K. Rowling"
    r"\.(?=[\"'”*]*(?:\s+(?:The|This|That|It|He|She|They|We|In|So|Because)\b|\s*$))"
    r"|(?<!\b[A-Z])(?<!\b(?:St|Dr|Mr|Ms|Mt|Lt))(?<!\b(?:Mrs|Gen|Col|Sgt|Rev|Gov|Sen))(?<!\b(?:Prof|Capt))"
    r"\.(?=[\"'”*]*\s+[A-Z])"
)
_UNCUT = re.compile(r"\w+(?:[.,]\w+)*|\W")
_SIGNS = re.compile(r"((?<!\w)-(?=\.?\d)|(?<=\d)\.(?=\d)|(?<=[^\W\d_])[+#]+(?!\w))|[^\w\s]")
_BRACE = re.compile(r"(?P<box>\\(?:f?boxed|fbox)\s*)?\{|\}")
_TRUTH = {"yes": "True", "true": "True", "no": "False", "false": "False"}
_DENIED = (
    r"(?:(?<![\w-])(?:not|cannot|can['’]?t|never)|n['’]t)[ \t]+(?:be[ \t]+)?"
    r"(?:(?:really|actually|a)[ \t]+|(?P<hedge>\w+)[ \t]+)?(?:be[ \t]+)?(?P<denied>true|false)"
)
_TRUTH_WORD = re.compile(
    rf"(?:{_DENIED}|(?<![\w-])(?P<no>not\s+)?(?P<word>yes|no|true|false))(?![\w-])", re.IGNORECASE
)
_TRUTH_OFFER = re.compile(r"\b(?:yes\s*(?:or|/)\s*no|true\s*(?:or|/)\s*false)\b", re.IGNORECASE)
_VERDICT = re.compile(
    rf"(?:{_DENIED}|(?:^|[.!?,;:\n]\s*|\b(?:so|therefore|thus|hence|is|be)\s+)[\"'“*(]*(?P<no>not\s+)?"
    r"(?P<word>yes|no|true|false))[\"'”*)]*(?:(?=\s*(?:[.,!;:\n]|$))|\s+(?:because|since|as)\b[^.!?\n]*)",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"\W*(?:(?:[Bb]oth|[Ee]ither|[Oo]ptions|[Cc]hoices)\s+)?"
    r"[A-Z](?:,\s*[A-Z])*,?\s+(?:and|or|&)\s+[A-Z](?![\w'’])"
)
_UNCLEAR = {"number": re.compile(r".*\d"), "boolean": re.compile(f".*{_DENIED}", re.I), "choice": _SEVERAL}
"""What an answer that was read as None may still hold; then nothing else in the text is the answer."""
_RIGHT = r"(?=\s+is\s+(?:the\s+)?(?:correct|right)\b)"
_CHOICE = re.compile(
    r"\((?P<round>[A-Za-z])\)|\b(?:option|choice)\s+\(?(?P<named>[A-Za-z])\b"
    r"|(?<![A-Za-z'’])(?P<marked>[A-Za-z])(?=\s*(?:[).:,;\]]|$|\n)|\s+[-–—]\s)"
    rf"|(?<![A-Za-z'’])(?P<bare>[B-HJ-Z](?![A-Za-z'’])|[AI]{_RIGHT})",
    re.IGNORECASE,
)


def extract(text: str, answer_type: str, *, mode: str = "flexible") -> str | None:
    """The answer that ``text`` gives first, canonical, or None.

    ``strict`` reads the rest of the line after the first ``Answer:`` and nothing else. ``flexible`` reads
    the same with any case or emphasis and on the next line, then ``\\boxed``, ``####``, "the answer is",
    and last a closing number, verdict or letter; all before a restated question.
    """
    _check(answer_type, ANSWER_TYPES, "answer type")
    _check(mode, MODES, "extraction")
    return _reading(text, answer_type, mode).answer


def locate(text: str, answer_type: str, *, mode: str = "flexible") -> tuple[int, int] | None:
    """``(start, end)``: where the answer that :func:`extract` gives stands in ``text``; None without one.

    It is the number, verdict, letter or phrase that was read, without the words around it.

    >>> text = "10 / 4 eggs. Answer: 10/4 = $2.50 each"
    >>> text[slice(*locate(text, "number"))]
    '2.50'
    """
    _check(answer_type, ANSWER_TYPES, "answer type")
    _check(mode, MODES, "extraction")
    found = _reading(text, answer_type, mode)
    if found.answer is None:
        return None
    start, end = found.start, found.end
    closes = found.read is not _READERS[answer_type]

    def gives(start: int, end: int) -> bool:
        return found.read(text[start:end]) == found.answer

    if closes:  # on the last of its kind
        start = next(i for i in reversed(_cuts(text, start, end)) if gives(i, end))
        return start, next(i for i in _cuts(text, start, end) if gives(start, i))
    if answer_type == "number":
        held = _held(text[start:end])
        start, end = start + held[0], start + held[1]
        cleaned = numerals.clean(text[start:end])
        # "10/4" would give the 2.5 of "10/4 = 2.5" too, so that the number itself has to be reached.
        upto = cleaned[: _first_number(cleaned).end]
        cuts = _cuts(text, start, end)
        end = cuts[bisect_left(cuts, True, key=lambda i: numerals.clean(text[start:i]).startswith(upto))]
    else:
        end = next(i for i in _cuts(text, start, end) if gives(start, i))
    return next(i for i in reversed(_cuts(text, start, end)) if gives(i, end)), end


@lru_cache(maxsize=4096)  # a problem's votes and grades compare the same few answers over and over
def equal(
    a: str | None, b: str | None, answer_type: str, *, absolute: float = 1e-3, relative: float = 1e-6
) -> bool:
    """Whether two answers are the same; symmetric, reflexive, and False where either is None.

    Numbers agree within ``absolute`` or within ``relative`` times the larger magnitude (either suffices);
    LaTeX by value, by text, or symbolically in a worker process (:mod:`soft_reasoning.latex`).
    """
    _check(answer_type, ANSWER_TYPES, "answer type")
    if a is None or b is None:
        return False
    if a == b:
        return True
    if answer_type in ("number", "latex"):
        x, y = numerals.whole_value(a), numerals.whole_value(b)
        if x is not None and y is not None:
            return x == y or abs(x - y) <= max(_exact(absolute), _exact(relative) * max(abs(x), abs(y)))
        return latex.equivalent(a, b) if answer_type == "latex" else a.strip() == b.strip()
    if answer_type == "text":
        return _plain_words(a) == _plain_words(b)
    return (_READERS[answer_type](a) or a.strip()) == (_READERS[answer_type](b) or b.strip())


@lru_cache(maxsize=64)
def _exact(tolerance: float) -> Fraction:
    """The decimal fraction that a tolerance was written as."""
    return Fraction(str(tolerance))


def vote(
    answers: Sequence[str | None],
    answer_type: str,
    weights: Sequence[float] | None = None,
    *,
    absolute: float = 1e-3,
    relative: float = 1e-6,
) -> str | None:
    """The answer of the largest total weight (each 1 by default) under :func:`equal`; a tie goes to the
    earliest. None is no vote. An answer joins the first group whose earliest member it equals.

    Raises ValueError where ``weights`` and ``answers`` differ in length.
    """
    weights = [1.0] * len(answers) if weights is None else weights
    if len(weights) != len(answers):
        raise ValueError(f"expected {len(answers)} weights, one an answer, got {len(weights)}")
    totals: dict[str, float] = {}
    for answer, weight in zip(answers, weights, strict=True):
        if answer is None:
            continue
        same = (g for g in totals if equal(g, answer, answer_type, absolute=absolute, relative=relative))
        group = next(same, answer)
        totals[group] = totals.get(group, 0.0) + weight
    return max(totals, key=totals.__getitem__) if totals else None


@dataclass(frozen=True)
class Grader:
    """How a run reads and compares answers: tolerances of :func:`equal`, mode of :func:`extract`.

    The public code's grading is ``Grader(absolute=0.01, relative=0)``.
    """

    absolute: float = 1e-3
    relative: float = 1e-6
    extraction: str = "flexible"

    def __post_init__(self) -> None:
        _check(self.extraction, MODES, "extraction")
        for name in ("absolute", "relative"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and math.isfinite(value) and value >= 0):
                raise UserError(f"grader.{name}: expected a finite number >= 0, got {value}; try 1e-3")

    def extract(self, text: str, answer_type: str) -> str | None:
        return extract(text, answer_type, mode=self.extraction)

    def locate(self, text: str, answer_type: str) -> tuple[int, int] | None:
        return locate(text, answer_type, mode=self.extraction)

    def equal(self, a: str | None, b: str | None, answer_type: str) -> bool:
        return equal(a, b, answer_type, absolute=self.absolute, relative=self.relative)

    def vote(
        self, answers: Sequence[str | None], answer_type: str, weights: Sequence[float] | None = None
    ) -> str | None:
        return vote(answers, answer_type, weights, absolute=self.absolute, relative=self.relative)

    def correct(self, answer: str | None, problem: Problem) -> bool | None:
        """Whether ``answer`` is the problem's; None where the problem has no gold answer."""
        return None if problem.gold is None else self.equal(answer, problem.gold, problem.answer_type)


def _check(value: str, known: tuple[str, ...], what: str) -> None:
    if value not in known:
        raise UserError(f"unknown {what} '{value}'; use one of {', '.join(known)}")


@dataclass(frozen=True)
class _Reading:
    """An answer, and ``text[start:end]`` that ``read`` took it from."""

    answer: str | None
    start: int = 0
    end: int = 0
    read: Callable[[str], str | None] | None = None


@lru_cache(maxsize=1024)  # candidates of a problem are often alike, and each is read by several parts
def _reading(text: str, answer_type: str, mode: str) -> _Reading:
    """The answer that ``text`` gives first, in the order that :func:`extract` says."""

    def reading(start: int, end: int, read: Callable[[str], str | None]) -> _Reading:
        if answer_type == "number" and text[:start].rstrip(" \t").endswith("\n"):
            item = _ITEM.match(text, start, end)  # a list's mark is no sign
            start = item.end() if item else start
        return _Reading(read(text[start:end]), start, end, read)

    read = _READERS[answer_type]
    if mode == "strict":
        found = _STRICT.search(text)
        return reading(*found.span(1), read) if found and found[1].strip() else _Reading(None)
    # Some models leave the line of the marker empty, or hold only "$$" or "\[" on it.
    if (found := _MARKER.search(text)) and (word := _WORD.search(text, found.end())):
        start, end = max(found.end(), text.rfind("\n", 0, word.start()) + 1), _line_end(text, word.start())
        one = reading(start, end, read)
        unclear = answer_type in _UNCLEAR and _UNCLEAR[answer_type].match(text[start:end])
        if one.answer is not None or unclear or _REFUSAL.search(text[start:end]):
            return one
    text = text[: restated.start()] if (restated := _RESTATED.search(text)) else text
    if (box := _box(text)) and box[0] < box[1]:
        return reading(*box, read)
    for pattern in (_HASHES, _PHRASE):
        if found := pattern.search(text):
            start = len(text) - len(text[found.end() :].lstrip())
            if (one := reading(start, _line_end(text, start), read)).answer is not None:
                return one
    last_line = text.rstrip().rpartition("\n")[2]
    if _REFUSAL.search(last_line):
        return _Reading(None)
    return reading(0, len(text), partial(_closing, answer_type=answer_type))


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _cuts(text: str, start: int, end: int) -> list[int]:
    """Where ``text[start:end]`` may be cut, in order: beside words and decimals, not inside them."""
    edges = {start, end}
    for found in _UNCUT.finditer(text, start, end):
        edges.update(found.span())
    return sorted(edges)


def _box(text: str) -> tuple[int, int] | None:
    r"""Where the content of the last complete ``\boxed{...}`` (or ``\fbox``) stands, braces balanced."""
    held, last, opened = None, -1, []  # opened: where each open brace's content starts, -1 if not a box's
    for found in _BRACE.finditer(text):
        if found.group() != "}":
            opened.append(found.end() if found["box"] else -1)
        elif opened and (start := opened.pop()) > last:
            held, last = (start, found.start()), start
    return held


def _boxed(text: str) -> str | None:
    """What that box holds."""
    return text[slice(*box)] if (box := _box(text)) else None


def _held(span: str) -> tuple[int, int]:
    """The part of a span before a restated question, and of that the box alone where one holds anything."""
    end = restated.start() if (restated := _RESTATED.search(span)) else len(span)
    box = _box(span[:end])
    return box if box and box[0] < box[1] else (0, end)


def _unwrapped(span: str) -> str:
    return span[slice(*_held(span))]


def _number(span: str) -> str | None:
    found = _first_number(numerals.clean(_unwrapped(span)))
    return None if found is None or found.value is None else numerals.canonical(found.value)


def _first_number(cleaned: str) -> numerals.Number | None:
    refusal = _REFUSAL.search(cleaned)
    return numerals.first(cleaned[: refusal.start()] if refusal else cleaned)


def _boolean(span: str) -> str | None:
    span = _TRUTH_OFFER.sub(" ", _unwrapped(span).replace("*", ""))
    found = _TRUTH_WORD.search(span)
    return _truth(found) if found else None


def _truth(found: re.Match[str]) -> str | None:
    if found["hedge"]:  # "not necessarily true"
        return None
    value = _TRUTH[(found["denied"] or found["word"]).lower()]
    return value if not (found["denied"] or found["no"]) else ("False" if value == "True" else "True")


def _choice(span: str) -> str | None:
    span = re.sub(r"[*$`_\"“”]", "", _plain(_unwrapped(span))).strip(" '‘’")
    if _SEVERAL.match(span):
        return None
    for found in _CHOICE.finditer(span):
        letter = found["round"] or found["named"] or found["marked"]
        if letter or (found["bare"] and found["bare"].isupper()):
            return (letter or found["bare"]).upper()
    return None


def _plain(span: str) -> str:
    r"""A span without ``\text{...}`` and its like around words."""
    return re.sub(r"\\(?:text|mathrm|mathbf|textbf)\s*\{([^{}]*)\}", r"\1", span)


def _latex(span: str) -> str | None:
    box = _boxed(span)
    if box is None:
        maths = re.search(r"\$\$?(.+?)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", span)
        box = next((group for group in maths.groups() if group), "") if maths else _sentence(span)
    return box.strip().strip("$").strip() or None if not _REFUSAL.search(box) else None


def _text(span: str) -> str | None:
    first = _TEXT_END.split(_plain(_unwrapped(span)).strip(), maxsplit=1)[0]
    span = " ".join(first.split()).strip("*`\"'“”").strip()
    return span if span and not _REFUSAL.search(span) else None


def _sentence(span: str) -> str:
    """A span up to the end of its first sentence, without the full stop."""
    return re.split(r"\.(?=[\"'”*]*(?:\s+[A-Z]|\s*$))", span.strip(), maxsplit=1)[0].strip()


def _plain_words(text: str) -> str:
    """Text for comparison: case, articles and punctuation apart, but for "-5", "1.5" and "C++"."""
    words = _SIGNS.sub(lambda found: found[1] or " ", text.casefold().replace("−", "-")).split()
    return " ".join(word for word in words if word not in ("a", "an", "the")) or text.strip().casefold()


def _closing(text: str, answer_type: str) -> str | None:
    """The answer that an unmarked text ends on."""
    if answer_type == "number":
        value = numerals.last_value(numerals.clean(text))
        return None if value is None else numerals.canonical(value)
    if answer_type == "boolean":
        verdicts = list(_VERDICT.finditer(_TRUTH_OFFER.sub(" ", text)))
        return _truth(verdicts[-1]) if verdicts else None
    if answer_type == "choice":
        letters = re.findall(rf"\(([A-Z])\)|(?<!or )\b([A-Z]){_RIGHT}", text)
        return "".join(letters[-1]) if letters else _choice(text) if len(text.split()) == 1 else None
    if answer_type == "latex":
        maths = re.findall(r"\$([^$]+)\$", text)
        return maths[-1].strip() or None if maths else None
    return None


_READERS = {"number": _number, "boolean": _boolean, "choice": _choice, "latex": _latex, "text": _text}
