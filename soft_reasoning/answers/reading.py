"""Reading the answer that a text gives: the statement after its last mark, or the end of the text."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from soft_reasoning.answers import boolean, choice, latex, number, text, which_number
from soft_reasoning.answers.statement import (
    PLAIN,
    UNFINISHED,
    WINDOW,
    Place,
    Reading,
    answer_end,
    main_sentences,
    prepared,
    sentences,
    stated,
)
from soft_reasoning.checks import choice as one_of
from soft_reasoning.thoughts import split

READERS: dict[str, Callable[[str, str, Place], Reading | None]] = {
    "number": which_number.read,
    "boolean": boolean.read,
    "choice": choice.read,
    "latex": latex.read,
    "text": text.read,
}
"""Functions of a sentence, the question and the place; None where it holds nothing of their type."""
WHOLE: dict[str, Callable[[str], Reading | None]] = {
    "open": text.read_open,
    "json": text.read_json,
    "code": text.read_code,
}
"""Functions of the whole text."""
ANSWER_TYPES = (*READERS, *WHOLE)
MODES = ("flexible", "strict")

_STRICT = re.compile(r"(?<![A-Za-z])Answer[:：][ \t]*([^\n]*)")
_OTHER_LANGUAGE = re.compile(
    r"[\u0400-\u1fff\u3040-\ufdff\ufe10-\uffef]|\b(?:ist|und|der|das|sind|zijn|het|een|est|les|une|dans|che|sono|della|los|las"
    r"|del|una|por|são|uma)\b"
)
"""A letter or a word of a language that writes 1.200 for 1200."""
_WORD = re.compile(r"\w+")
_CONCLUDES = re.compile(r"\s*(?:so|therefore|thus|hence)\b", re.IGNORECASE)
_OPEN_END = re.compile(r"[\w,:;]\s*$")


def extract(
    text: str, answer_type: str, *, mode: str = "flexible", question: str = "", cut: bool = False
) -> str | None:
    """Return the canonical answer that ``text`` states, or None.

    Args:
        text: the text of a model.
        answer_type: one of ``ANSWER_TYPES``.
        mode: ``strict`` reads the rest of the line after the first ``Answer:`` and nothing else;
            ``flexible`` reads as the package's docstring says.
        question: the question, whose options a choice must be one of.
        cut: whether a limit ended the text. Then only a statement with text after it is finished, and the
            end of the text gives no answer.

    Raises:
        UserError: for an unknown answer type or mode.
    """
    reading = _read(text, answer_type, mode, question, cut)
    return reading and reading.answer


def locate(
    text: str, answer_type: str, *, mode: str = "flexible", question: str = ""
) -> tuple[int, int] | None:
    """Return ``(start, end)`` of the answer of :func:`extract` alone in ``text``; None without one.

    >>> text = "10 / 4 eggs. Answer: 10/4 = $2.50 each"
    >>> text[slice(*locate(text, "number"))]
    '2.50'
    """
    reading = _read(text, answer_type, mode, question, False)
    return None if reading is None or reading.answer is None else (reading.start, reading.end)


def read_value(text: str, answer_type: str, question: str = "") -> str | None:
    """Return the canonical answer that a short text is, without marks and sentences around it.

    >>> read_value("3/4", "number"), read_value("18 apples", "number"), read_value("St. Louis", "text")
    ('3/4', '18', 'St. Louis')
    """
    if answer_type == "text":
        return text
    plain = text if answer_type == "latex" else text.translate(PLAIN)
    reading = READERS[answer_type](plain, question, "stated")
    return reading and reading.answer


@lru_cache(maxsize=1024)  # candidates are often equal, and several parts read each of them
def _read(written: str, answer_type: str, mode: str, question: str, cut: bool) -> Reading | None:
    one_of("answer type", answer_type, ANSWER_TYPES)
    one_of("extraction", mode, MODES)
    if answer_type in WHOLE:
        reading = WHOLE[answer_type](written)
        broken = cut and answer_type == "code" and reading and reading.end == len(written.rstrip())
        return None if broken else reading
    answer = split(written)[1]
    if answer_type not in ("text", "latex"):
        answer = answer.translate(PLAIN)
    if answer_type == "number" and _OTHER_LANGUAGE.search(answer):
        return None
    plain = prepared(answer)
    if answer_type == "choice":
        plain = choice.without_list(plain, question)
    read = _read_strict if mode == "strict" else _read_flexible
    reading = read(plain, answer_type, question, cut)
    return reading and reading.shifted(len(written) - len(answer))


def _read_strict(plain: str, answer_type: str, question: str, cut: bool) -> Reading | None:
    line = _STRICT.search(plain)
    if line is None or cut and _unfinished(plain, *line.span(1)):
        return None
    start, end = line.start(1), min(line.end(1), line.start(1) + WINDOW)
    within = stated(plain[start:end]) or (0, end - start)
    return _read_statement(plain, start + within[0], start + within[1], answer_type, question)


def _unfinished(plain: str, start: int, end: int) -> bool:
    """Whether a statement is the last sentence of a text that was cut."""
    return end == len(plain) and len(sentences(plain, start, end)) < 2


def _read_flexible(plain: str, answer_type: str, question: str, cut: bool) -> Reading | None:
    """Read the last statement; without one, or if it does not begin with its value, the end of the text."""
    end = answer_end(plain)
    start, stop = stated(plain[:end]) or (0, 0)
    if cut and _unfinished(plain, start, stop):
        return None
    if stop:
        reading = _read_statement(plain, start, stop, answer_type, question)
        if start == stop or reading and len(_WORD.findall(plain, start, reading.start)) <= 2:
            first = len(_WORD.findall(plain, 0, start)) <= 3
            return (
                Reading(None) if first and _contradicted(reading, plain[stop:end], answer_type) else reading
            )
    if cut and end == len(plain):
        return None
    return _read_end(plain, start, end, answer_type, question)


def _contradicted(reading: Reading | None, rest: str, answer_type: str) -> bool:
    """Whether a text that begins with its number concludes with another."""
    last = rest[slice(*sentences(rest, 0, len(rest))[-1])] if _WORD.search(rest) else ""
    if answer_type != "number" or not reading or not _CONCLUDES.match(last):
        return False
    other = which_number.read(last)
    if other is None or other.answer is None:
        return False
    return reading.answer is None or number.value_of(other.answer) != number.value_of(reading.answer)


def _read_statement(plain: str, start: int, end: int, answer_type: str, question: str) -> Reading | None:
    """Read a statement: words and formulas from its line, others from its first sentence."""
    if answer_type not in ("text", "latex"):
        start, end = next(iter(sentences(plain, start, end)), (start, end))
    reading = READERS[answer_type](plain[start:end], question, "stated")
    return reading and reading.shifted(start)


def _read_end(plain: str, start: int, end: int, answer_type: str, question: str) -> Reading | None:
    """Read the last sentence that holds an answer; None where the text breaks off after it."""
    if UNFINISHED.search(plain, max(start, end - 40), end) or answer_type == "text":
        return None
    if answer_type == "latex":
        return latex.close(plain[:end])
    read, places = READERS[answer_type], main_sentences(plain, max(start, end - WINDOW), end)
    lines = choice.lines(plain[start:end], question) if answer_type == "choice" else []
    for n, (begin, stop) in reversed([*enumerate(places)]):
        if lines and begin < start + lines[-1].end():
            opened = choice.opening(plain[places[0][0] : lines[0].start() + start], question)
            return opened.shifted(places[0][0]) if opened else choice.compared(lines, question).shifted(start)
        place: Place = "last" if n else "only"
        place = place if n == len(places) - 1 else "earlier"
        if reading := read(plain[begin:stop], question, place):
            settled = _settled(plain, places, reading, answer_type, question) if place == "last" else None
            return settled or reading.shifted(begin)
        if stop == end and _OPEN_END.search(plain, begin, stop):
            return None
    return None


def _settled(
    plain: str, places: list[tuple[int, int]], reading: Reading, answer_type: str, question: str
) -> Reading | None:
    r"""What settles a last sentence: the result before it if it is ambiguous, or an answer at the beginning.

    >>> extract("3 * 4 = 12.\nSo there are 12 eggs in 3 boxes.", "number")
    '12'
    >>> extract("No.\nIt is true that birds sing, but not all of them.", "boolean")
    'False'
    """
    (first, after), (before, end), (last, stop) = places[0], places[-2], places[-1]
    concludes = _CONCLUDES.match(plain, last)
    if answer_type == "number" and concludes and reading.answer is None:
        result = which_number.read(plain[before:end], place="earlier")
        same = which_number.confirmed(plain[last:stop], result.answer) if result else None
        return same and same.shifted(last)
    if answer_type == "boolean" and not concludes:
        opening = boolean.read(plain[first:after], place="earlier")
        if opening and not _WORD.search(plain, first, first + opening.start):
            alone = not _WORD.search(plain, first + opening.end, after)
            return opening.shifted(first) if alone or reading.answer is None else None
    if answer_type == "choice" and not choice.states(plain[last:stop], question):
        opening = choice.opening(plain[first:end], question)
        return opening and opening.shifted(first)
    return None
