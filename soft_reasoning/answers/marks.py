r"""Finding where a text states its answer.

The last mark decides: ``\boxed{``, ``####``, ``<answer>``, a key "answer" of JSON, "Answer:" or "the answer
is". Where nothing is stated after it, the text has none: an earlier one is not the answer. A text
ends where the model starts another question.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from typing import NamedTuple

PLAIN = {
    code: plain if len(plain := unicodedata.normalize("NFKC", chr(code))) == 1 else chr(code)
    for code in (*range(0xFF01, 0xFF5F), 0xFE63, 0xA0, 0x2007, 0x2009, 0x200A, 0x202F, 0x3000)
}
PLAIN |= dict.fromkeys((*range(0x2010, 0x2014), 0x2212), "-") | dict.fromkeys((0x2044, 0x2215), "/")
PLAIN |= dict.fromkeys((0xFEFF, 0x200B, 0x2060), " ")
"""Dashes that may be a minus, full-width characters, spaces and fraction bars, as ASCII writes them."""
SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))
"""Every character that is a space or ends a line."""
WINDOW = 2000
"""The most characters of a statement, or of the end of a text, that are read, so that reading is linear."""

_MARK = re.compile(
    r"""(?P<box>\\(?:f?boxed|fbox)\s?(?:\{|\Z))
      | (?P<tag><(?:final[_ -]?)?answer>) | (?P<key>"(?:final_?)?answer"\s*:\s*)
      | (?<!\#)\#\#\#\#(?!\#)[ \t]*(?=\$?-?[$.\d]|\s*\Z)
      | (?<![\w-])(?:answer|ans\.?)(?:[ ]?\([^()\n]{1,40}\))?[* ]{0,3}(?:[:：=]|[-=]>|→|-[ ])[*_ \t]*
      | (?<![\w-])(?:answer|(?:correct|right|best)[ ](?:option|choice))\b[^:：.;\n]{0,60}?
        \b(?:is|must[ ]be)\b(?!['’]):?[*_ \t]*
      | ^[#* \t]*(?:final[ ])?answer[* \t]*$""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_STRICT = re.compile(r"(?<![A-Za-z])Answer[:：][ \t]*([^\n]*)")
_NEXT = re.compile(
    r"^[ \t#*>]*(?:question|problem|exercise|example|instruction|input|q|user|human)[ ]?\d{0,3}[* ]{0,3}:"
    r"|<\|[a-z_]+\|>|</s>|\[INST\]",
    re.IGNORECASE | re.MULTILINE,
)
"""Where a model starts another question or turn."""
_LAYOUT = re.compile(
    r"(?<!\d)\*\*|\*\*(?!\d)|`|(?<![\w*])\*(?=\w)|(?<=\w)\*(?![\w*])|~~[^~\n]{1,200}~~"
    r"|^[ \t#>*-]*\d{1,2}[.)][ \t]+(?=\S)|^[ \t]*[-*#>•]+[ \t]+"
    r"|</?(?:b|i|u|em|strong|p|br|div|span|h[1-6]|ul|ol|li)\s?/?>",
    re.MULTILINE,
)
"""Emphasis, what is struck out, bullets and numbers of a list, and tags of HTML."""
_VALUE_END = re.compile(r',\s*"\w+"\s*:|[}\n]')
"""After a value of JSON: the next key, or the end."""
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b[DMS][rst]\.)(?<!\bMrs\.)(?<!\b[A-Z]\.)[\"')\]*]{0,3}\s+(?=\S)|\n"
)
_WORD = re.compile(r"\w")
_CHECKS = re.compile(
    r"\W*(?:step \d+\W+)?(?:(?:let['’]?s|let us|let me|we can|to|now)\s){0,2}"
    r"(?:double.?check|check(?!-)|verif(?:y|ication)|note\b|this assumes|let me know|please let|i hope)",
    re.IGNORECASE,
)
"""At the beginning of a check of the result, a note or a politeness."""
UNFINISHED = re.compile(
    r"(?:[=+×÷/\\({\[,]|\s[-*$]|\\[a-z]+|\b(?:the|of|and|is|are|to|by|per|with|for|so|then|which))\s*$"
)
"""The end of a text that breaks off."""


class Reading(NamedTuple):
    """An answer and its place ``text[start:end]``; None where the text gives none or is ambiguous."""

    answer: str | None
    start: int = 0
    end: int = 0

    def shifted(self, offset: int) -> Reading:
        """The same reading in a text with ``offset`` more characters in front."""
        return Reading(self.answer, self.start + offset, self.end + offset)


def holds_word(text: str) -> bool:
    """Whether ``text`` holds a letter or a digit."""
    return any(map(str.isalnum, text))


def without_layout(text: str) -> str:
    """``text`` with spaces in place of layout; its length stays the same."""
    return _LAYOUT.sub(lambda match: " " * len(match.group()), text)


def answer_end(text: str) -> int:
    """Where the answer of ``text`` ends and another question begins."""
    first = _MARK.search(text) or _WORD.search(text)
    after = _NEXT.search(text, first.end()) if first else None
    return after.start() if after else len(text)


def first_line(text: str) -> tuple[int, int] | None:
    """Where the rest of the line after the first ``Answer:`` is, or what is stated in it."""
    if (line := _STRICT.search(text)) is None:
        return None
    start = line.start(1)
    within = stated(line[1])
    return (start + within[0], start + within[1]) if within else line.span(1)


def stated(text: str) -> tuple[int, int] | None:
    """Where the last statement of ``text`` is; empty without one or if it is one of two; None without a mark.

    An unclosed brace or tag ends at the end of its line.
    """
    marks = deque(_MARK.finditer(text), maxlen=2)
    if not marks:
        return None
    mark, start, bound = marks[-1], marks[-1].end(), min(len(text), marks[-1].end() + WINDOW)
    if mark["box"] and (end := _closing_brace(text, start)) is not None:
        return start, start if _is_second(text, marks[0], mark, end) else end
    if mark["tag"] and (close := text.find("</", start, bound)) >= 0:
        return start, close
    if mark["key"]:
        end = _VALUE_END.search(text, start, bound)
        return start, end.start() if end else start
    word = _WORD.search(text, start, bound)
    line_end = text.find("\n", word.start(), bound) if word else start
    return start, bound if line_end < 0 else line_end


def _is_second(text: str, before: re.Match[str], box: re.Match[str], end: int) -> bool:
    r"""Whether another box with another value stands in the same sentence: "\boxed{3} or \boxed{4}"."""
    close = _closing_brace(text, before.end()) if before is not box and before["box"] else None
    if close is None or text[before.end() : close] == text[box.end() : end]:
        return False
    return not _SENTENCE_END.search(text, close, box.start())


def _closing_brace(text: str, start: int) -> int | None:
    """Where the brace that is open at ``start`` closes."""
    depth = 1
    for place, char in enumerate(text[start : start + WINDOW], start):
        depth += (char == "{") - (char == "}")
        if not depth:
            return place
    return None


def sentences(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The sentences of ``text[start:end]`` that hold a word, up to a check of the result or a note."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text, start, end)]
    places = zip([start, *ends], [*ends, end], strict=True)
    kept = [(begin, stop) for begin, stop in places if _WORD.search(text, begin, stop)]
    checks = (n for n, place in enumerate(kept) if n and _CHECKS.match(text, *place))
    return kept[: next(checks, len(kept))]
