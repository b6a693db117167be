r"""Where a text states its answer.

1. The text ends where a model goes on to another question ("Question:", a chat template's next turn).
2. A statement is what follows "Answer:" (any emphasis, "Final answer:", "Answer to part 2:", a heading), what
   ``\boxed{}`` holds, what follows ``####``, "the answer is", or a word of correction ("Wait,", "Sorry,")
   after an earlier statement. It reaches to the next statement.
3. Statements come last first: the last one that can be read is the answer.

No step looks further than ``WINDOW`` characters from a statement's beginning, which keeps reading linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

WINDOW = 2000
"""Characters that one statement may have."""

_BEFORE = 40  # characters that are looked at before "answer"

_HIT = re.compile(
    r"[Aa]nswer|ANSWER|####|\b(?:Wait|Actually|Correction|Sorry|Oops|Hmm|Edit|[Nn]o)\b(?=[\s,.:!…])"
)
_QUALIFIED = re.compile(
    r"(?:\b(?:[Tt]he|THE|[Mm]y|[Oo]ur|[Ff]inal)\s+(?:(?:final|Final|correct|right|best|overall|whole)\s+)?"
    r"|(?:^|[.!?\n])[\s*_#(>]*(?!(?:Each|Every|Per|Any|Another|Wrong|Right|For)\b)(?:[A-Z][a-z]+(?:\s\d+)?\s+)?)$"
)
"""What makes a lower-case "answer:" a marker: "for every wrong answer: 3 points" is reasoning."""
_OF_WHAT = r"(?:\s(?:\d{1,2}|\([^()\n]{1,20}\)|(?:to|for|of)\s[^:.\n]{1,40}?|so\sfar))?"
_COLON = re.compile(
    _OF_WHAT + r"[ \t]{0,3}[*_]{0,3}[ \t]{0,3}\n?[ \t]{0,3}(?::|[ \t][-–—][ \t]|=)[ \t]{0,3}[*_]{0,3}(?![*_])[ \t]{0,9}"
)
_HEADING = re.compile(r"[ \t]{0,3}[*_]{0,3}[ \t]{0,3}\n")
_HEADING_BEFORE = re.compile(r"(?:^|\n)[ \t#*_]*(?:Final |The )?$")
_PHRASE = re.compile(
    _OF_WHAT + r"\s{1,3}(?:(?:is|equals|would\sbe|must\sbe|should\sbe|will\sbe)\b|=|(?=isn['’]t))\s{0,3}:?[ \t]{0,9}"
)
_SENTENCE_START = re.compile(r"(?:^|[.!?…(\n])[\s*_(]*$")
_NO_AS_CORRECTION = re.compile(r",?\swait\b|,\s{0,3}[-−$€£\d]")
_NEXT_QUESTION = re.compile(
    r"(?<![A-Za-z-])(?:Question|QUESTION|Problem|PROBLEM)[ \t]{0,3}\d{0,3}\s{0,3}:|\n[ \t]{0,8}Q[ \t]{0,3}\d{0,3}:"
    r"|<\|(?:im_end|im_start|eot_id|start_header_id|end_of_text|endoftext)\|>|</s>|\[INST\]|\n(?:User|Human):"
)
_BRACE = re.compile(r"(?P<box>\\(?:f?boxed|fbox)\s{0,3})?\{|\}")
_WORD = re.compile(r"\w")


@dataclass(frozen=True)
class Statement:
    """``text[start:end]``; ``kind`` is marker, box, hashes, phrase or correction; ``begin`` is where its
    marker stands."""

    kind: str
    begin: int
    start: int
    end: int


def statements(text: str) -> tuple[list[Statement], int]:
    """The statements of ``text``, the last first, and where the text's own answer ends."""
    found = [one for hit in _HIT.finditer(text) if (one := _statement(text, hit))]
    own_end = _own_end(text, next((one.start for one in found if one.kind == "marker"), None))
    found = [one for one in [*found, *_boxes(text)] if one.start <= own_end and one.end <= own_end]
    found.sort(key=lambda one: one.begin, reverse=True)
    return [*_closed(found, own_end)], own_end


def _closed(found: list[Statement], own_end: int) -> Iterator[Statement]:
    """The statements, each ended where the next begins."""
    following = own_end
    for one in found:
        end = one.end if one.kind == "box" else max(one.start, min(following, one.start + WINDOW))
        yield Statement(one.kind, one.begin, one.start, end)
        following = one.begin


def _statement(text: str, hit: re.Match[str]) -> Statement | None:
    """What begins at ``hit``; its end is not known yet."""
    begin, end = hit.span()
    before = text[max(0, begin - _BEFORE) : begin]
    word = hit.group()
    if word == "####":
        return Statement("hashes", begin, end, end)
    if word.lower() != "answer":
        if not _SENTENCE_START.search(before) or (word.lower() == "no" and not _NO_AS_CORRECTION.match(text, end)):
            return None
        return Statement("correction", begin, end, end)
    if before[-1:].isalpha():
        return None
    if (colon := _COLON.match(text, end)) and (word != "answer" or _QUALIFIED.search(before)):
        return Statement("marker", begin, colon.end(), colon.end())
    if phrase := _PHRASE.match(text, end):
        return Statement("phrase", begin, phrase.end(), phrase.end())
    if word != "answer" and (heading := _HEADING.match(text, end)) and _HEADING_BEFORE.search(before):
        return Statement("marker", begin, heading.end(), heading.end())
    return None


def _own_end(text: str, answered: int | None) -> int:
    """Where another question begins after the first marked statement (``answered``), or after anything."""
    position = 0 if answered is None else answered
    while found := _NEXT_QUESTION.search(text, position):
        if _WORD.search(text, 0 if answered is None else answered, found.start()):
            return found.start()
        position = answered = found.end()
    return len(text)


def last_box(text: str) -> tuple[int, int] | None:
    r"""Where the content of the last complete ``\boxed{...}`` (or ``\fbox``) stands that holds anything."""
    last = max(_boxes(text), key=lambda box: box.begin, default=None)
    return None if last is None else (last.start, last.end)


def _boxes(text: str) -> Iterator[Statement]:
    r"""Every complete ``\boxed{...}`` (or ``\fbox``) that holds anything, braces balanced."""
    if "box" not in text:
        return
    opened: list[re.Match[str]] = []
    for found in _BRACE.finditer(text):
        if found.group() != "}":
            opened.append(found)
        elif opened and (box := opened.pop())["box"] and 0 < found.start() - box.end() <= WINDOW:
            yield Statement("box", box.start(), box.end(), found.start())
