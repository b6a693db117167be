"""The base of all readers: readings, sentences, and the decisive candidates of a sentence."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

WINDOW = 2000
"""The most characters of a statement, or of the end of a text, that are read, so that reading is linear."""

REFUSAL = re.compile(
    r"\b(?:can(?:not|['’]?t| not)|could(?: not|n['’]t)|unable to|(?:impossible|no way|hard|difficult) to)\s"
    r"(?:be )?(?:answer|determin|calculat|comput|solv|find|say|know|tell|provid|help|decid|choos|do that)"
    r"|\b(?:do not|don['’]t) know\b|\b(?:does|do|did)(?: not|n['’]t) (?:say|state|mention|specify|give)\b"
    r"|(?:\bnot enough|n['’]t enough|\binsufficient) (?:information|data|context)\b|\bneed (?:to know|more)\b"
    r"|\b(?:unknown|undefined|unclear|undetermined|indeterminate|n/a|no answer|isn['’]t given)\b(?!\s\w)"
    r"|\bit depends\b|\bnone of (?:these|the (?:above|options|choices|answers|others))\b",
    re.IGNORECASE,
)
"""Phrases by which a text declines to answer."""

_SENTENCE_END = re.compile(
    r"(?<!^\d)(?<!\n\d)(?<!\.[a-z])(?<!\b[A-Z])[.!?…][\"')\]*]{0,3}\s+(?=[^\w\s]{0,2}[A-Z\d])|;\s|\n"
)
_OPENER = re.compile(
    r"\W*(?:By|After|For|With|From|At|On|In|Of|Out of|Over|Within|During|Given|Since|If|When|Because|As"
    r"|Before|To|Between|Per|Every|While|Although|Instead|Rather|Compared|[A-Z][a-z]+ing)\b[^,\n]*,\s"
)
_LAST_FIGURE = r"(?=\D*\d[\d,.]*\D*$)"
_CONCLUSION = re.compile(
    r"\b(?:so(?! that)|therefore|thus|hence|consequently|then|but|overall|only|lean|leaves|makes|means|gives"
    r"|left with|now has|totals?(?= of)|of which|i\.e\.,?|that is,?|in other words,|rounds?(?: up| down)? to"
    r"|(?<=, )(?:leaving|giving|making)|conclu(?:de|sion)|in summary|based on (?:this|that)|equals)(?!\w)"
    rf"|:{_LAST_FIGURE}",
    re.IGNORECASE,
)
_REASON = re.compile(
    r",?\s(?:because|since|as required|while|whereas|(?:even )?though|although|where|when|if|after|before)\s"
    rf"|,\s(?:as|all of|twice|from|which (?:is|was))\s|:\s(?!{_LAST_FIGURE[3:]}"
)


class Reading(NamedTuple):
    """A canonical answer and its place ``text[start:end]``.

    ``answer`` is None where the text gives none: it declines or is ambiguous.
    """

    answer: str | None
    start: int = 0
    end: int = 0

    def shifted(self, offset: int) -> Reading:
        """The same reading in a text with ``offset`` more characters in front."""
        return Reading(self.answer, self.start + offset, self.end + offset)


class Reader:
    """Reads answers of one type; None where a text holds no such answer."""

    def sentence(self, sentence: str) -> Reading | None:
        """Read one sentence."""
        raise NotImplementedError

    def read(self, statement: str) -> Reading | None:
        """Read a statement, the text after "Answer:" or the content of a box: its first line."""
        start, stop = first_line(statement)
        reading = self.sentence(statement[start:stop])
        return reading and reading.shifted(start)

    def close(self, text: str) -> Reading | None:
        """Read a text without a statement: its last sentence that holds an answer of this type."""
        begin = max(0, len(text) - WINDOW)
        for start, sentence in reversed([*sentences(text[begin:])]):
            if reading := self.sentence(sentence):
                return reading.shifted(begin + start)
        return None

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        """Whether two answers are the same."""
        return self._canonical(a) == self._canonical(b)

    def _canonical(self, answer: str) -> str:
        reading = self.read(answer)
        return reading.answer if reading and reading.answer else answer.strip()


def first_line(statement: str) -> tuple[int, int]:
    """Return the start and end of the first line that holds a word."""
    word = re.search(r"\w", statement)
    if word is None:
        return 0, 0
    start = statement.rfind("\n", 0, word.start()) + 1
    end = statement.find("\n", word.start())
    return start, len(statement) if end < 0 else end


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """The sentences of ``text`` that hold a word, and where each begins."""
    begin = 0
    for stop in [*(end.end() for end in _SENTENCE_END.finditer(text)), len(text)]:
        if re.search(r"\w", text[begin:stop]):
            yield begin, text[begin:stop].rstrip()
        begin = stop


def decisive(sentence: str, candidates: Sequence[Reading]) -> list[Reading]:
    """Candidates after a leading clause and the last "so", and before a reason ("because ...")."""
    for lead in [_OPENER.match(sentence), *_CONCLUSION.finditer(sentence)]:
        candidates = [c for c in candidates if lead and c.start >= lead.end()] or candidates
    reason = _REASON.search(sentence, candidates[0].end) if candidates else None
    return [c for c in candidates if reason is None or c.end <= reason.start()]


def blanked(pattern: re.Pattern[str], text: str) -> str:
    """``text`` with every match of ``pattern`` replaced by as many spaces."""
    return pattern.sub(lambda match: " " * len(match.group()), text)


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match of ``pattern`` in ``text``."""
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)
