r"""Finding where a text states its answer.

1. Reasoning in ``<think>``, struck-out text and markdown are replaced by spaces, so that positions stay
   the same.
2. The text ends where the model continues with another question or turn.
3. A statement is the text after "Answer:", ``####`` or "the answer is", the content of ``\boxed{}``, of
   ``<answer>`` or of a key of JSON, or a correction of an earlier statement ("Wait, ..."). It ends where the
   next statement begins.

No step looks more than ``WINDOW`` characters beyond the start of a statement, so reading takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from soft_reasoning.answers.reader import WINDOW, blanked

_PLAIN = {0xFF01 + i: 0x21 + i for i in range(94)} | {0x3000: " ", 0x3002: ".", 0x200B: " ", 0xFEFF: " "}
_THOUGHT = re.compile(
    r"[<\[◁](?P<end>/?)(?:think|thinking|thought|reasoning|scratchpad)[>\]▷]|(?P<final>final<\|message\|>)",
    re.IGNORECASE,
)
_MARKDOWN = re.compile(
    r"~~[^~\n]{1,200}~~|<(?:s|del)>[^<\n]{1,200}</|\\cancel\{[^{}\n]{1,200}\}"  # struck out
    r"|(?<=[\d.])[ ]?\[\^?\d{1,2}\](?=[.\s]|$)"  # the mark of a footnote
    r"|(?<!\d)\*\*|\*\*(?!\d)|`"
)

_HEADING = re.compile(
    r"""(?P<turn><\|[a-z_]{2,20}\|> | </s> | <(?:start|end)_of_turn> | \[INST\]
      | ^\#{2,3}[ ]?(?:Instruction|User)\b)
    | (?<![A-Za-z_-])(?:Question|QUESTION|Problem|PROBLEM)[ ]?(?P<inline>\d{0,3}):
    | ^[ \t#*_>(-]{0,8}(?:[A-Z][\w-]{1,20}[ ])?
      (?i:question|problem|exercise|example|task|puzzle|riddle|input|q|next|follow-?up|user|human
        |frage|aufgabe|pregunta|problema|вопрос|задача|问题|题目)
      [ \t]{0,3}(?P<number>\d{0,3})[*_ \t]{0,4}(?:[:.)]|$)
    | ^[ \t*_(]{0,8}(?:What[ ]if|Now,[ ]a|(?:Now,?[ ]|You[ ]can[ ])?[Tt]ry[ ](?:this|it|another)
      |(?:Another|A[ ]similar)[ ]\w+:)""",
    re.VERBOSE | re.MULTILINE,
)
"""Where a model continues with another question or turn."""
_ASKING = re.compile(
    r"\n[ \t]{0,9}\n[ \t]{0,9}(?!Wait|Hmm|But|So\b|And|Is (?:that|this|it))(?:\d{1,2}[.)] )?"
    r"[A-Z][^\n?]{8,600}\?[*_ ]{0,9}\n"
)
"""A question without a heading, in a separate paragraph."""

_ANSWER = r"(?<![A-Za-z])(?:[Aa]nswer|ANSWER|[Aa]ns\.?|Antwort|[Rr]éponse|[Rr]espuesta|[Оо]твет|答案)"
_WHICH = r"(?: (?:\d{1,2}|finale?|correct[ae]?|\([^()\n]{1,20}\)|(?:to|for|of) [^:.\n]{1,40}?))?"
_IS = "is|IS|equals|would be|must be|should be|will be|ist|lautet|est|es|[是为]"
_MARK = re.compile(
    rf"(?P<marker>{_ANSWER}{_WHICH}[*_ \t]{{0,5}}\n?[ \t]{{0,3}}(?::|=| [-–—] )[*_ \t]{{0,5}})"
    rf"|(?P<phrase>(?<!whether the ){_ANSWER}{_WHICH}(?:\s{{0,3}}(?:{_IS})(?![a-z]):?|(?= isn['’]t)))"
    r"|(?P<hashes>(?<!#)####(?!#))"
    r"|(?P<correction>(?:^|(?<=[.!?…(\n])|(?<=[.!?…(\n] ))(?:Wait|Actually|Correction|Sorry|Oops|Hmm|No wait)"
    r"\b|\b[Nn]o,?(?= [$\d]))"
)
_NESTED = r"(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]{0,99}+\}){0,999}+\}){0,999}+\}){1,1999}+"
BOX = re.compile(rf"\\(?:f?boxed|fbox)\s?\{{(?P<box>{_NESTED})\}}")
_KEY = "(?:final|correct)?[_ ]?answer|final|result|verdict|label|choice|solution|prediction"
_SEALED = re.compile(
    r"<(?:final[_ -]?)?(?:answer|result)>(?P<tag>[^<]{1,2000})"
    rf"|(?:[\"'](?:{_KEY})[\"']\s{{0,3}}:\s{{0,3}}|\banswer=(?=[\"']))\[?"
    r"""(?:"(?P<quoted>(?:[^"\\]|\\.){0,2000})"|'(?P<single>[^'\n]{0,2000})'|(?P<bare>[^,}\]\n]{1,200}))""",
    re.IGNORECASE,
)
"""A tag, or a key of JSON, and its content."""

_WORD = re.compile(r"\w")
_TRIES = 5
"""The most headings before the first statement that are tried."""
MOST = 300
"""The most statements that are tried, from the last; a text with more repeats itself."""


class Statement(NamedTuple):
    """The statement ``text[start:end]``; its mark ("Answer:") begins at ``begin``.

    ``kind`` is sealed (a tag's or key's content), box, marker, phrase, hashes or correction.
    """

    kind: str
    begin: int
    start: int
    end: int


def prepared(text: str) -> str:
    """``text`` with spaces in place of thoughts, struck-out text and markdown; its length stays the same."""
    if not text.isascii():
        text = text.translate(_PLAIN)
    if thoughts := [*_THOUGHT.finditer(text)]:
        last = thoughts[-1]
        end = last.end() if last["end"] or last["final"] else len(text)  # cut off while thinking
        text = " " * end + text[end:]
    return blanked(_MARKDOWN, text)


def statements(text: str, has_answer: Callable[[str], bool]) -> tuple[list[Statement], int]:
    """Return the statements of ``text`` and where its answer ends and other questions or turns begin.

    ``has_answer`` says whether a text without a statement gives an answer. Tags and keys of JSON hide all
    other statements.
    """
    stated = [_content("sealed", match) for match in _SEALED.finditer(text)]
    if not stated:
        stated = [_content("box", match) for match in BOX.finditer(text)]
        stated += [Statement(m.lastgroup or "", m.start(), m.end(), 0) for m in _MARK.finditer(text)]
        stated.sort(key=lambda statement: statement.begin)
        while stated and stated[0].kind == "correction":
            del stated[0]
    answer_end = _answer_end(text, stated[0].start if stated else None, has_answer)
    stated = [statement for statement in stated if statement.start < answer_end][-MOST:]
    following = [*(statement.begin for statement in stated[1:]), answer_end]
    ends = [
        statement.end or min(limit, statement.start + WINDOW)
        for statement, limit in zip(stated, following, strict=False)
    ]
    return [statement._replace(end=end) for statement, end in zip(stated, ends, strict=True)], answer_end


def _content(kind: str, match: re.Match[str]) -> Statement:
    return Statement(kind, match.start(), *match.span(match.lastgroup or 0))


def _answer_end(text: str, first: int | None, has_answer: Callable[[str], bool]) -> int:
    """The start of another question after the first statement, or after a text that gives an answer.

    A numbered question before the first statement means that the model splits its question into parts;
    later numbers then do not end the text.
    """
    end = len(text)
    split = False
    for tries, heading in enumerate(_HEADING.finditer(text)):
        begin, number = heading.start(), heading["inline"] or heading["number"]
        if first is not None and begin >= first:
            ends = bool(_WORD.search(text, first, begin))
        else:
            before = text[max(0, begin - WINDOW) : begin].strip()
            ends = bool(before) and tries < _TRIES and bool(heading["turn"] or has_answer(before))
        if ends and not (split and number):
            end = begin
            break
        split = split or bool(number)
    asking = None if first is None else _ASKING.search(text, first, end)
    return asking.start() if asking else end
