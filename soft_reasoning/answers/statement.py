r"""Finding where a text states its answer.

The last mark decides: ``\boxed{``, ``####``, ``<answer>``, a key "answer" of JSON, "Answer:" or "the answer
is". Where nothing is stated after it, the text has none: an earlier one is not the answer. A text
ends where the model starts another question.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from typing import Literal, NamedTuple

Place = Literal["stated", "only", "last", "earlier"]
"""Where a sentence stands: after a mark, or without one as the only, the last or an earlier one of a text."""
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
      | (?<!\#)\#\#\#\#(?!\#)[ \t]*(?=\$?[-−]?[$.\d]|\s*\Z)
      | (?<![A-Za-z])(?:answer[^:：.;\n]{0,60}?|ans[.]?[ \t]?)(?:[:：]|\bis:?(?![a-z'’])|=)[*_ \t]*
      | (?<![A-Za-z])answer[* ]{0,3}(?:[-=]>|→|-[ ])[*_ \t]*
      | ^[#* \t]*(?:final[ ])?answer[* \t]*$""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_NEXT = re.compile(
    r"^[ \t#*>]*(?:question|problem|exercise|example|instruction|input|q|user|human)[ ]?\d{0,3}[* ]{0,3}:"
    r"|<\|[a-z_]+\|>|</s>|\[INST\]",
    re.IGNORECASE | re.MULTILINE,
)
"""Where a model starts another question or turn."""
_LAYOUT = re.compile(
    r"(?<!\d)\*\*|\*\*(?!\d)|`|(?<![\w*])\*(?=\w)|(?<=\w)\*(?![\w*])|^[ \t#>*-]*\d{1,2}[.)][ \t]+(?=\S)"
    r"|(?<!\w)_{1,2}(?=\d)|(?<=\d)_{1,2}(?!\w)|~~[^~\n]{1,200}~~|</?(?:b|i|u|em|strong|p|br|div|span|h[1-6]|ul|ol|li|center|mark)\s?/?>"
    r"|(?<=[\w.!?])\[\d{1,2}\]|(?<=[a-z]{2})¹|(?<=\d)!(?=[\s\"'”)*\u2600-\u27bf\ufe0f\U0001f300-\U0001faff]*$|\s+[A-Z])",
    re.MULTILINE,
)
"""Emphasis, numbers of a list, what is struck out, tags of HTML, footnote marks, and an exclamation mark."""
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]*]{0,3}\s+(?=\S)|\n")
_BRACE = re.compile(r"\\.|[{}]")
_CLOSE = re.compile("</")
_JSON_VALUE = re.compile(
    r'"(?:[^"\\]|\\.){0,2000}"|[\[(][^\])]{0,2000}[\])]|(?:[^"\[\](,}\n]|,(?=\d)){1,2000}(?=[,}\n])',
    re.DOTALL,
)
_BESIDE = re.compile(r"[\s$\\)]{0,9}(?:,|or|and)[\s$\\(]{0,9}")
"""Between two boxes that are both meant."""
_WORD = re.compile(r"\w")
_CHECKS = re.compile(
    r"\W*(?:step \d+\W+)?(?:(?:let['’]?s|let us|let me|we can|to|quick|sanity|now)\s){0,2}"
    r"(?:(?:double.?check|check|verif(?:y|ication)|confirm)(?:ing)?|substituting back|plugging)\b",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(
    r"\W*(?:so|therefore|thus|hence|final|total|answer|in total|in conclusion)\b", re.IGNORECASE
)
_NOTES = re.compile(
    r"[\s(_*]*(?:\[\d+\]|[¹²³†]|note\b|this assumes|assuming\b[^,\n]*$|let me know|please let|i hope)",
    re.IGNORECASE,
)
"""At the beginning of a check, of what ends it, and of a note or a politeness."""
_ITEM, _TOTAL = re.compile(r"\s*[-*•]\s"), re.compile(r"\b(?:total|sum|altogether)\b[^\n]*\d", re.IGNORECASE)
UNFINISHED = re.compile(
    r"(?:[=+×÷/\\({\[]|\s[-*$]|\\[a-z]+|\b(?:the|of|and|is|are|to|by|per|with|for|so|then|which))\s*$"
)
"""The end of a text that breaks off."""
DENIES = re.compile(
    r"\b(?:not|cannot|never|neither|nor|maybe|perhaps|possibly|depends|unclear|unknown|partly|sometimes"
    r"|whether)\b|n['’]t\b|\?\s*$",
    re.IGNORECASE,
)
"""What denies or doubts what is said."""
REFUSES = re.compile(
    r"\b(?:cannot|can not|unable to|impossible to|not possible to|(?:ca|could)n['’]t) (?:be )?"
    r"(?:answer|determin|calculat|solv|say|tell|know)|\bnot enough (?:information|data)",
    re.IGNORECASE,
)


class Reading(NamedTuple):
    """An answer and its place ``text[start:end]``; None where the text gives none or is ambiguous."""

    answer: str | None
    start: int = 0
    end: int = 0

    def shifted(self, offset: int) -> Reading:
        """The same reading in a text with ``offset`` more characters in front."""
        return Reading(self.answer, self.start + offset, self.end + offset)


def prepared(text: str) -> str:
    """``text`` with spaces in place of layout; its length stays the same."""
    return _LAYOUT.sub(lambda match: " " * len(match.group()), text)


def answer_end(text: str) -> int:
    """Where the answer of ``text`` ends and another question begins."""
    first = _MARK.search(text) or _WORD.search(text)
    after = _NEXT.search(text, first.end()) if first else None
    return after.start() if after else len(text)


def stated(text: str) -> tuple[int, int] | None:
    """Where the last statement of ``text`` is; empty without one or if it is one of two; None without a mark.

    An unclosed brace or tag ends at the end of its line.
    """
    marks = deque(_MARK.finditer(text), maxlen=2)
    if not marks:
        return None
    mark, start, bound = marks[-1], marks[-1].end(), marks[-1].end() + WINDOW
    if mark["box"] and (end := _closing_brace(text, start)) is not None:
        before = _closing_brace(text, marks[0].end()) if len(marks) > 1 and marks[0]["box"] else None
        beside = before is not None and _BESIDE.fullmatch(text, before + 1, mark.start())
        return start, start if beside else end
    if mark["tag"] and (close := _CLOSE.search(text, start, bound)):
        return start, close.start()
    if mark["key"]:
        value = _JSON_VALUE.match(text, start)
        return start, value.end() if value else start
    word = _WORD.search(text, start)
    end = text.find("\n", word.start(), bound) if word else start
    return start, min(len(text), bound) if end < 0 else end


def _closing_brace(text: str, start: int) -> int | None:
    """Where the braces that are open at ``start`` close."""
    depth = 1
    for brace in _BRACE.finditer(text, start, start + WINDOW):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if not depth:
            return brace.start()
    return None


def main_sentences(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The sentences that can give an answer: no check of a result, no note, nor the items of a total."""
    kept, checks = list[tuple[int, int]](), False
    for place in sentences(text, start, end):
        checks = bool(_CHECKS.match(text, *place)) or checks and not _CONCLUDES.match(text, *place)
        if not checks and not (kept and _NOTES.match(text, *place)):
            kept.append(place)
    items = next((n for n, place in enumerate(reversed(kept)) if not _ITEM.match(text, *place)), len(kept))
    block = kept[-items - 1 :] if items else []
    totals = [place for place in block if _TOTAL.search(text, *place)]
    return kept[: kept.index(totals[0]) + 1] if len(totals) == 1 else kept or sentences(text, start, end)


def sentences(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The sentences of ``text[start:end]`` that hold a word."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text, start, end)]
    places = zip([start, *ends], [*ends, end], strict=True)
    return [(begin, stop) for begin, stop in places if _WORD.search(text, begin, stop)]
