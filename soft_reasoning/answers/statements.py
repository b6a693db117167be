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
from collections.abc import Callable, Iterator
from typing import NamedTuple

from soft_reasoning.answers.own_text import WINDOW, own_end
from soft_reasoning.answers.reader import any_of

MOST = 1000
"""Most statements that are tried, from the last; a text with more is a loop."""

_BEFORE = 40  # characters examined before "answer"
_SHORT = 40  # longest first line that may be an answer alone

_ANSWER = (
    "answer", "Answer", "ANSWER", "Antwort", "ANTWORT", "Réponse", "réponse", "RÉPONSE", "Respuesta",
    "respuesta", "Ответ", "ответ", "ОТВЕТ", "答案", "答",
)  # fmt: skip
_CORRECTIONS = (
    "Wait", "Actually", "Correction", "Sorry", "Oops", "Hmm", "Edit", "no,", "No,", "no wait", "No wait",
    "correction:",
)  # fmt: skip
_QUALIFIED = re.compile(
    r"(?:\b(?:[Tt]he|THE|[Mm]y|[Oo]ur|[Ff]inal)\s+(?:(?:final|Final|correct|right|best|overall|whole)\s+)?"
    r"|(?:^|[.!?\n])[\s*_#(>]*(?!(?:Each|Every|Per|Any|Another|Wrong|Right|For|Long|Longer"
    r"|Full)\b)(?:[A-Z][a-z]+(?:\s\d+)?\s+)?)$"
)
"""What makes a lower-case "answer:" a marker: "for every wrong answer: 3 points" is reasoning."""
_OF_WHAT = (
    r"(?:\s(?:\d{1,2}|finale?|correct[ae]|exacte|\([^()\n]{1,20}\)|(?:to|for|of)\s[^:.\n]{1,40}?|so\sfar))?"
)
_COLON = re.compile(
    _OF_WHAT + r"[ \t]{0,3}[*_]{0,3}[ \t]{0,3}\n?[ \t]{0,3}(?::|[ \t][-–—][ \t]|=)"
    r"[ \t]{0,3}[*_]{0,3}(?![*_])[ \t]{0,9}"
)
_HEADING = re.compile(r"[ \t]{0,3}[*_]{0,3}[ \t]{0,3}\n")
_HEADING_BEFORE = re.compile(r"(?:^|\n)[ \t#*_]*(?:Final |The )?$")
_PHRASE = re.compile(
    _OF_WHAT + rf"(?:\s{{1,3}}(?:{any_of('is, IS, equals, would be, must be, should be, will be')}\b"
    rf"|{any_of('ist, lautet, est, es, sera')}\b|=|(?=isn['’]t))|[是为选])"
    r"\s{0,3}:?[ \t]{0,9}"
)
_WHETHER = re.compile(
    r"\b(?:whether|if|(?:not|n['’]t)\sthink|doubt)\s(?:that\s)?(?:(?:the|my)\s)?(?:(?:final|correct)\s)?$",
    re.IGNORECASE,
)
_SENTENCE_START = re.compile(r"(?:^|[.!?…(\n])[\s*_(]*$")
_NO_THEN = re.compile(r"\s{0,3}(?:wait\b|[-−$€£\d])")
_BRACE = re.compile(r"(?P<box>\\(?:f?boxed|fbox)\s{0,3})?\{|\}")
_WORD = re.compile(r"\w")
_SEALED = any_of("result, solution, verdict, choice, option, label, prediction, conclusion")
_KEY = re.compile(
    r"[\"'](?P<answer>(?:final|correct|my|the)?[_ ]?answer)[\"']\s{0,3}:\s{0,3}"
    r"|\b(?P<attribute>answer)=(?=[\"'])"
    rf"|[\"'](?:final[_ ]?)?{_SEALED}[\"']\s{{0,3}}:\s{{0,3}}",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"""\[?\s{0,3}(?:"(?P<quoted>(?:[^"\\]|\\.){0,2000})"|'(?P<single>[^'\n]{0,2000})'"""
    r"""|\{(?P<object>[^{}]{0,2000})\}|(?P<bare>[^,}\]\n"]{1,200}))"""
)
_TAG = re.compile(r"<(?:final[_ -]?)?(?:answer|result|solution)>", re.IGNORECASE)


class Statement(NamedTuple):
    """``text[start:end]``, whose mark is at ``begin``.

    ``kind`` is sealed (a tag's or key's content), marker, box, hashes, phrase or correction.
    """

    kind: str
    begin: int
    start: int
    end: int


def statements(text: str, opens: Callable[[str], bool]) -> tuple[list[Statement], int]:
    """Return the statements of ``text``, last first, and the end of the text's own answer.

    ``opens`` says whether a text begins with an answer. Tags and keys of JSON hide all other statements.
    """
    stated = [*_tags(text)] or [*_keys(text)]
    if stated:
        end = own_end(text, min(statement.end for statement in stated))
        return sorted((s for s in stated if s.end <= end), key=lambda s: s.begin, reverse=True)[:MOST], end
    stated = [s for begin, word in _occurrences(text, _ANSWER) if (s := _marked(text, begin, word))]
    stated += [
        Statement("hashes", begin, begin + 4, len(text))
        for begin, _ in _occurrences(text, ("####",))
        if text[begin + 4 : begin + 5] != "#"
    ]
    stated += _boxes(text)
    stated.sort(key=lambda s: s.begin)
    end = own_end(text, _first_answer(text, stated, opens))
    if stated:
        stated += [
            Statement("correction", begin, begin + len(word.rstrip(",")), end)
            for begin, word in _occurrences(text, _CORRECTIONS, stated[0].begin)
            if _corrects(text, begin, word)
        ]
    stated = sorted((s for s in stated if s.start <= end), key=lambda s: s.begin, reverse=True)
    return [*_closed(stated[:MOST], end)], end


def _first_answer(text: str, stated: list[Statement], opens: Callable[[str], bool]) -> int | None:
    """Where the first answer is given: in a short first line, or in the first statement that gives one."""
    first_line = text[:WINDOW].lstrip().partition("\n")[0]
    if len(first_line) <= _SHORT and opens(first_line):
        return len(text) - len(text.lstrip())
    for statement in stated[:MOST]:
        if statement.kind in ("marker", "box") or opens(
            text[statement.start : statement.start + _BEFORE * 2]
        ):
            return statement.start
    return None


def _tags(text: str) -> Iterator[Statement]:
    """The content of each ``<answer>``, up to the next one where it is not closed."""
    tags = [*_TAG.finditer(text)]
    for tag, following in zip(tags, [*(tag.start() for tag in tags[1:]), len(text)], strict=False):
        limit = min(following, tag.end() + WINDOW)
        end = text.find("</", tag.end(), limit)
        end = limit if end < 0 else end
        if _WORD.search(text, tag.end(), end):
            yield Statement("sealed", tag.start(), tag.end(), end)


def _keys(text: str) -> Iterator[Statement]:
    """The value of each key of JSON that is called "answer", else of those called "result" and the like."""
    keys = [*_KEY.finditer(text)]
    for key in [key for key in keys if key["answer"] or key["attribute"]] or keys:
        if value := _VALUE.match(text, key.end()):
            name = value.lastgroup or "bare"
            yield Statement("sealed", key.start(), value.start(name), value.end(name))


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
    if before[-1:].isalpha() and word.isascii():
        return None
    if (colon := _COLON.match(text, end)) and (word != "answer" or _QUALIFIED.search(before)):
        return Statement("marker", begin, colon.end(), end)
    if (phrase := _PHRASE.match(text, end)) and not _WHETHER.search(before):
        return Statement("phrase", begin, phrase.end(), end)
    if word != "answer" and (heading := _HEADING.match(text, end)) and _HEADING_BEFORE.search(before):
        return Statement("marker", begin, heading.end(), end)
    return None


def _corrects(text: str, begin: int, word: str) -> bool:
    """Whether a word of correction at ``begin`` starts a sentence and continues like a correction."""
    end = begin + len(word)
    if word.endswith(":"):
        return True
    if text[end : end + 1].isalpha() or not _SENTENCE_START.search(text, max(0, begin - _BEFORE), begin):
        return False
    return not word.endswith(",") or _NO_THEN.match(text, end) is not None


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
