"""Reading the answer that a text gives: the statement after its last mark, else its last sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from soft_reasoning.answers import boolean, choice, latex, marks, number, text
from soft_reasoning.answers.marks import PLAIN, WINDOW, Reading
from soft_reasoning.checks import choice as one_of
from soft_reasoning.thoughts import split

READERS: dict[str, Callable[[str, str, bool], Reading | None]] = {
    "number": number.read,
    "boolean": boolean.read,
    "choice": choice.read,
    "latex": latex.read,
    "text": text.read,
}
"""Functions of a sentence, the question, and whether a mark stands before it.

They return None where it holds nothing of their type.
"""
WHOLE: dict[str, Callable[[str], Reading | None]] = {
    "open": text.read_open,
    "json": text.read_json,
    "code": text.read_code,
}
"""Functions of the whole text."""
LINES = ("latex", "text")
"""Types that are read from a whole line, with its characters as they are."""
ANSWER_TYPES = (*READERS, *WHOLE)
MODES = ("flexible", "strict")

_OTHER_LANGUAGE = re.compile(
    r"[\u0400-\u1fff\u3040-\ufdff\ufe10-\uffef]|\b(?:ist|und|der|das|sind|zijn|het|een|est|les|une|dans|che|sono|della|los|las"
    r"|del|una|por|são|uma)\b"
)
"""A letter or a word of a language that writes 1.200 for 1200."""
_BOLD = re.compile(r"\*\*([^*\n]{1,80})\*\*")
_CONCLUSIONS = ("so", "therefore", "thus", "hence")


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
    reading = READERS[answer_type](text if answer_type in LINES else text.translate(PLAIN), question, True)
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
    answer = answer if answer_type in LINES else answer.translate(PLAIN)
    if answer_type == "number" and _OTHER_LANGUAGE.search(answer):
        return None
    plain = marks.without_layout(answer)
    plain = plain if mode == "strict" else plain[: marks.answer_end(plain)]
    unfinished = cut and len(plain) == len(answer)
    reading = None
    if place := marks.first_line(plain) if mode == "strict" else marks.stated(plain):
        parts = marks.sentences(plain, *place)
        if not parts or unfinished and place[1] == len(plain) and len(parts) < 2:  # nothing, or part of it
            return None
        start, stop = place if answer_type in LINES else parts[0]
        reading = _at(plain, (start, stop), answer_type, question, marked=True)
        if reading and "\n" in plain[place[0] : start] and len(plain[start : reading.start].split()) > 2:
            reading = None  # prose, or the first of several equations, in a line of its own
        begins = reading and mode == "flexible" and len(plain[: place[0]].split()) <= 3
        if reading and begins and not _agrees(reading, plain, place[1], answer_type, question):
            return None
    if reading is None and mode == "flexible" and not unfinished:
        reading = _read_end(plain, answer, answer_type, question)
    return reading and reading.shifted(len(written) - len(answer))


def _at(
    plain: str, place: tuple[int, int], answer_type: str, question: str, *, marked: bool = False
) -> Reading | None:
    """Read one sentence of a text."""
    reading = READERS[answer_type](plain[slice(*place)], question, marked)
    return reading and reading.shifted(place[0])


def _agrees(reading: Reading, plain: str, start: int, answer_type: str, question: str) -> bool:
    """Whether a text that begins with its answer concludes with no other: "Answer: 3. ... So it is 5."."""
    sentences = marks.sentences(plain, start, len(plain))
    last = plain[slice(*sentences[-1])].split() if sentences else []
    if not last or last[0].strip(",:").lower() not in _CONCLUSIONS:
        return True
    other = _at(plain, sentences[-1], answer_type, question)
    return other is None or other.answer in (None, reading.answer)


def _read_end(plain: str, laid_out: str, answer_type: str, question: str) -> Reading | None:
    """Read the last sentence; None where the text breaks off.

    A verdict or an option with which the text begins is its answer, unless the end gives another one.

    >>> [extract(text, "boolean") for text in ("No. He cannot.", "No. So it is true.")]
    ['False', None]
    """
    if answer_type == "text" or marks.UNFINISHED.search(plain, max(0, len(plain) - 40)):
        return None
    if answer_type == "latex":
        return latex.close(plain)
    places = marks.sentences(plain, max(0, len(plain) - WINDOW), len(plain))
    if answer_type == "number":
        return _read_last_number(plain, laid_out, places)
    if not places:
        return None
    first, last = (_at(plain, place, answer_type, question) for place in (places[0], places[-1]))
    if first is None or first.answer is None or marks.holds_word(plain[: first.start]):
        return last
    return first if last is None else last if last.answer == first.answer else None


def _read_last_number(plain: str, laid_out: str, places: list[tuple[int, int]]) -> Reading | None:
    """Read the last sentence with a number; the only one in bold counts where a sentence has several.

    >>> extract("So 3 boxes hold **18** eggs.", "number")
    '18'
    """
    for start, stop in reversed(places):
        if reading := _at(plain, (start, stop), "number", ""):
            bold = [*_BOLD.finditer(laid_out, start, stop)]
            if reading.answer is None and len(bold) == 1:
                return _at(plain, bold[0].span(1), "number", "", marked=True)
            item = laid_out[start:stop].lstrip()[:2] in ("- ", "* ", "• ")  # which is no conclusion
            return None if item and "=" not in plain[start:stop] else reading
        end = plain[start:stop].rstrip()[-1:]
        if stop == len(plain) and (end.isalnum() or end in ",:;"):
            return None
    return None
