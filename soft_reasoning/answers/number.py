"""Reading numbers.

A statement gives the number of its first sentence (``prose`` says which one). If that sentence does not
begin with its number, the statement may be a derivation. Then the last sentence that computes or concludes
something counts, up to an explanation or the end of the paragraph. If the first sentence computes
something, later sentences on its line that continue with its result are followed. Number words count where
there are no digits. A text without a statement gives the number of its last sentence that has one, unless
the text was cut off or its headline is another number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

from soft_reasoning.answers import numerals, prose
from soft_reasoning.answers.numerals import Number, canonical, clean, find, whole_value
from soft_reasoning.answers.reader import REFUSAL, Found, any_of
from soft_reasoning.answers.statements import WINDOW

_WORD = re.compile(r"\w")
_LETTER_FIRST = re.compile(r"\W*[A-Za-z]")
_ALONE = re.compile(r"\s*(?:[,.;(!*]|$|since\b|because\b)")
_DIGIT = re.compile(r"\d")
_HEADLINE = re.compile(r"\s*(?:[^\d\n:]{1,30}:\s)?([^\n]{1,40}?)(?:\n\s*\n|[.!]\*{2}\s)")
_CUT = re.compile(
    rf"(?:[+×÷=/]|\s[-*]|\b{any_of('the, of, and, is, to, a, by, per, with, for, are, so, then, which')})\s*$"
)
"""The end of a text that was cut off."""
_LAST_DIGIT = re.compile(r".*\d", re.DOTALL)


class NumberReader:
    """Reads numbers; a :class:`~soft_reasoning.answers.reader.Reader`."""

    def read(self, statement: str) -> Found | None:
        text = clean(statement)
        if (chosen := _stated(text)) or not _DIGIT.search(text):
            return _placed(chosen, statement)
        return Found(None)  # "H2O": the rest of the text is not the answer

    def opens(self, statement: str) -> bool:
        line = statement.lstrip().partition("\n")[0][:WINDOW]
        line = clean(line) if _DIGIT.search(line, 0, 80) else line
        begin = prose.unlabelled(line)
        number = next(find(line[begin:]), None)
        if number is not None:
            return prose.opens(line[begin:], [number])
        words = numerals.find_words(line)
        return words is not None and not _WORD.search(line, 0, words[1])

    def close(self, text: str) -> Found | None:
        found = None if _CUT.search(text[-40:]) else self._last(text)
        first = _HEADLINE.match(text)
        if found and first and "=" not in first[1] and self.opens(first[1]):
            answer = self.read(first[1])  # "12 coins", and later "If he had 5 more, it would be 17."
            return found if answer is None or answer.answer == found.answer else Found(None)
        return found

    def _last(self, text: str) -> Found | None:
        last = _LAST_DIGIT.match(text)
        if last is None:
            return _placed(_in_words(clean(text[-WINDOW:])), text, max(0, len(text) - WINDOW))
        start, stop = max(text.rfind("\n", 0, last.end()) + 1, last.end() - WINDOW), last.end() + WINDOW
        line_end = text.find("\n", last.end())
        stop = min(stop, line_end if line_end >= 0 else len(text))
        piece = clean(text[start:stop])
        chosen: Choice | None = None
        for begin, end in prose.sentences(piece):
            meant = _meant(piece, begin, end)
            if meant and prose.overruled(meant[0], piece[meant[2] : end]):
                meant = None, 0, 0
            chosen = meant or _worded(piece, begin, end) or chosen
        return _placed(chosen, text, start, stop)

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        x, y = whole_value(a), whole_value(b)
        if x is None or y is None:
            return a.strip() == b.strip()
        return close_enough(x, y, absolute, relative)


Choice = tuple[Fraction | None, int, int]
"""A value (None if it cannot be computed) with its start and end."""


def close_enough(x: Fraction, y: Fraction, absolute: float, relative: float) -> bool:
    """Whether two values differ by at most ``absolute``, or ``relative`` times the larger magnitude."""
    if x == y:
        return True
    return abs(x - y) <= max(Fraction(str(absolute)), Fraction(str(relative)) * max(abs(x), abs(y)))


def _placed(chosen: Choice | None, text: str, offset: int = 0, stop: int | None = None) -> Found | None:
    if chosen is None:
        return None
    value, start, end = chosen
    answer = None if value is None else canonical(value)
    return Found(answer, start, end, clean, offset, len(text) if stop is None else stop)


def _stated(text: str) -> Choice | None:
    """What a cleaned statement gives."""
    spans = iter(prose.sentences(text, at_line_start=False))
    for begin, end in spans:
        sentence = text[begin:end]
        refusal = REFUSAL.search(sentence)
        if refusal:
            end = begin + refusal.start()
        words = numerals.find_words(sentence) if _LETTER_FIRST.match(sentence) else None
        opening = words is not None and not _WORD.search(sentence, 0, words[1])
        if words and opening and (not words[0] or _ALONE.match(sentence, words[2])):
            return words[0], begin + words[1], begin + words[2]
        if (chosen := _meant(text, begin, end)) or refusal:
            return _derived(text, begin, end, chosen, spans) if chosen else (None, 0, 0)
        if words and opening:
            return words[0], begin + words[1], begin + words[2]
    return _in_words(text)


def _derived(text: str, begin: int, end: int, chosen: Choice, rest: Iterable[prose.Span]) -> Choice:
    """What a statement gives whose first sentence with a number, ``text[begin:end]``, gives ``chosen``."""
    head = text[begin + prose.unlabelled(text[begin:end]) : end]
    numbers = list(find(head))
    expression = prose.is_expression(head, numbers)
    if prose.opens(head, numbers) and not expression:
        return chosen
    later: list[prose.Span] = []
    concludes = expression or "=" in head
    for start, stop in rest:
        sentence = text[start:stop]
        if "\n\n" in text[end:start]:
            break
        if expression and "\n" not in text[end:start]:
            if chosen[0] is not None and prose.computes_on(sentence, canonical(chosen[0])):
                chosen = _meant(text, start, stop) or chosen
        else:
            expression = False
            later.append((start, stop))
            concludes = concludes or prose.concludes(sentence)
        end = stop
    if not concludes:  # "She is 27 now. In 3 years she will be 30."
        return chosen
    return next((one for span in reversed(later) if (one := _meant(text, *span))), chosen)


def _meant(text: str, begin: int, end: int) -> Choice | None:
    """The number of the sentence ``text[begin:end]``; a question has none."""
    sentence = text[begin:end]
    if sentence.rstrip().endswith("?"):
        return None
    label = prose.unlabelled(sentence)
    numbers: list[Number] = list(find(sentence[label:])) if _DIGIT.search(sentence) else []
    number = prose.meant(sentence[label:], 0, numbers)
    if number is None:
        return None
    concluded = label + prose.last_conclusion(sentence[label:])
    if numbers[-1].start < concluded - label and (words := numerals.find_words(sentence, concluded)):
        return words[0], begin + words[1], begin + words[2]
    return number.value, begin + label + number.digits, begin + label + number.end


def _worded(text: str, begin: int, end: int) -> Choice | None:
    """The number in words that a sentence begins with: "Three pupils sit on each bench"."""
    words = numerals.find_words(text[begin:end])
    if words is None or words[0] <= 1 or _WORD.search(text[begin:end], 0, words[1]):
        return None
    return words[0], begin + words[1], begin + words[2]


def _in_words(text: str) -> Choice | None:
    """The number in words of the last sentence that holds one; "twice seven is fourteen" may mean either."""
    for begin, end in reversed([*prose.sentences(text)]):
        if words := numerals.find_words(text[begin:end]):
            other = numerals.find_words(text[begin:end], words[2])
            value = words[0] if other is None or other[0] == words[0] else None
            return value, begin + words[1], begin + words[2]
    return None
