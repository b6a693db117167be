r"""Finding where a text states its answer.

1. The text ends where a model continues with another question ("Question:", a chat template's next turn).
2. A statement is what follows "Answer:" (any emphasis, "Final answer:", "Answer to part 2:", a heading),
   the content of ``\boxed{}``, what follows ``####`` or "the answer is", or what follows a correction
   ("Wait,", "Sorry,") after an earlier statement. It ends where the next one begins.
3. Statements are tried from the last to the first; the first one that can be read is the answer.

No step looks more than ``WINDOW`` characters beyond the start of a statement, so reading takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from soft_reasoning.answers.patterns import any_of

WINDOW = 2000
"""Longest statement, in characters."""

MOST = 1000
"""Most statements that are tried, from the last; a text with more is a loop."""

_BEFORE = 40  # characters examined before "answer"

_ANSWER = ("answer", "Answer", "ANSWER")
_CORRECTIONS = (
    "Wait", "Actually", "Correction", "Sorry", "Oops", "Hmm", "Edit", "no,", "No,", "no wait", "No wait",
)  # fmt: skip
_QUALIFIED = re.compile(
    r"(?:\b(?:[Tt]he|THE|[Mm]y|[Oo]ur|[Ff]inal)\s+(?:(?:final|Final|correct|right|best|overall|whole)\s+)?"
    r"|(?:^|[.!?\n])[\s*_#(>]*(?!(?:Each|Every|Per|Any|Another|Wrong|Right|For)\b)(?:[A-Z][a-z]+(?:\s\d+)?\s+)?)$"
)
"""What makes a lower-case "answer:" a marker: "for every wrong answer: 3 points" is reasoning."""
_OF_WHAT = r"(?:\s(?:\d{1,2}|\([^()\n]{1,20}\)|(?:to|for|of)\s[^:.\n]{1,40}?|so\sfar))?"
_COLON = re.compile(
    _OF_WHAT + r"[ \t]{0,3}[*_]{0,3}[ \t]{0,3}\n?[ \t]{0,3}(?::|[ \t][-–—][ \t]|=)"
    r"[ \t]{0,3}[*_]{0,3}(?![*_])[ \t]{0,9}"
)
_HEADING = re.compile(r"[ \t]{0,3}[*_]{0,3}[ \t]{0,3}\n")
_HEADING_BEFORE = re.compile(r"(?:^|\n)[ \t#*_]*(?:Final |The )?$")
_PHRASE = re.compile(
    _OF_WHAT + rf"\s{{1,3}}(?:{any_of('is, equals, would be, must be, should be, will be')}\b|=|(?=isn['’]t))"
    r"\s{0,3}:?[ \t]{0,9}"
)
_SENTENCE_START = re.compile(r"(?:^|[.!?…(\n])[\s*_(]*$")
_NO_THEN = re.compile(r"\s{0,3}(?:wait\b|[-−$€£\d])")
_QUESTIONS = ("Question", "QUESTION", "Problem", "PROBLEM", "Q:", "User:", "Human:", "<|", "</s>", "[INST]")
_NEXT_QUESTION = re.compile(
    r"(?<![A-Za-z-])(?:Question|QUESTION|Problem|PROBLEM)[ \t]{0,3}\d{0,3}\s{0,3}:"
    r"|<\|(?:im_end|im_start|eot_id|start_header_id|end_of_text|endoftext)\|>|</s>|\[INST\]"
    r"|(?:(?<=\n)|(?<=\n ))(?:Q|User|Human):"
)
_BRACE = re.compile(r"(?P<box>\\(?:f?boxed|fbox)\s{0,3})?\{|\}")
_WORD = re.compile(r"\w")


class Statement(NamedTuple):
    """``text[start:end]``, whose mark is at ``begin``.

    ``kind`` is marker, box, hashes, phrase or correction.
    """

    kind: str
    begin: int
    start: int
    end: int


def statements(text: str) -> tuple[list[Statement], int]:
    """Return the statements of ``text``, last first, and the end of the text's own answer."""
    found = [one for begin, word in _occurrences(text, _ANSWER) if (one := _marked(text, begin, word))]
    own_end = _own_end(text, next((one.start for one in found if one.kind == "marker"), None))
    found += [
        Statement("hashes", begin, begin + 4, own_end)
        for begin, _ in _occurrences(text, ("####",))
        if text[begin + 4 : begin + 5] != "#"
    ]
    found += _boxes(text)
    if found:
        found += [
            Statement("correction", begin, begin + len(word.rstrip(",")), own_end)
            for begin, word in _occurrences(text, _CORRECTIONS, min(one.begin for one in found))
            if _corrects(text, begin, word)
        ]
    found = sorted((one for one in found if one.start <= own_end), key=lambda one: one.begin, reverse=True)
    return [*_closed(found[:MOST], own_end)], own_end


def _occurrences(text: str, words: tuple[str, ...], begin: int = 0) -> Iterator[tuple[int, str]]:
    """Positions of each of ``words``, one word after the other."""
    for word in words:
        position = text.find(word, begin)
        while position >= 0:
            yield position, word
            position = text.find(word, position + len(word))


def _closed(found: list[Statement], own_end: int) -> Iterator[Statement]:
    """The statements, each ended where the next begins."""
    following = own_end
    for kind, begin, start, end in found:
        if kind != "box":
            end = max(start, min(following, start + WINDOW))
        if end <= own_end:
            yield Statement(kind, begin, start, end)
            following = begin


def _marked(text: str, begin: int, word: str) -> Statement | None:
    """The statement that "answer" at ``begin`` introduces."""
    end = begin + len(word)
    before = text[max(0, begin - _BEFORE) : begin]
    if before[-1:].isalpha():
        return None
    if (colon := _COLON.match(text, end)) and (word != "answer" or _QUALIFIED.search(before)):
        return Statement("marker", begin, colon.end(), end)
    if phrase := _PHRASE.match(text, end):
        return Statement("phrase", begin, phrase.end(), end)
    if word != "answer" and (heading := _HEADING.match(text, end)) and _HEADING_BEFORE.search(before):
        return Statement("marker", begin, heading.end(), end)
    return None


def _corrects(text: str, begin: int, word: str) -> bool:
    """Whether a word of correction at ``begin`` starts a sentence and continues like a correction."""
    end = begin + len(word)
    if text[end : end + 1].isalpha() or not _SENTENCE_START.search(text, max(0, begin - _BEFORE), begin):
        return False
    return not word.endswith(",") or _NO_THEN.match(text, end) is not None


def _own_end(text: str, answered: int | None) -> int:
    """Where another question begins after the first marked statement (``answered``), or after anything."""
    position = 0 if answered is None else answered
    for begin, _ in sorted(_occurrences(text, _QUESTIONS, position)):
        if _NEXT_QUESTION.match(text, begin):
            if _WORD.search(text, position, begin):
                return begin
            position = begin + 1
    return len(text)


def last_box(text: str) -> tuple[int, int] | None:
    r"""Return the span of the content of the last complete, non-empty ``\boxed{...}`` (or ``\fbox``)."""
    last = max(_boxes(text), key=lambda box: box.begin, default=None)
    return None if last is None else (last.start, last.end)


def _boxes(text: str) -> Iterator[Statement]:
    r"""Every complete, non-empty ``\boxed{...}`` (or ``\fbox``), with balanced braces."""
    if "box" not in text:
        return
    opened: list[re.Match[str]] = []
    for found in _BRACE.finditer(text):
        if found.group() != "}":
            opened.append(found)
        elif opened and (box := opened.pop())["box"] and 0 < found.start() - box.end() <= WINDOW:
            yield Statement("box", box.start(), box.end(), found.start())
