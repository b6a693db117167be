r"""Finding where a text states its answer.

1. What is not the answer is blanked, so that every place keeps its number: reasoning in ``<think>``,
   struck-out text, footnotes, and remarks that follow an answer (a check of it, a note).
2. The text ends where the model goes on to another question, under whatever heading, or without one.
3. A statement is what follows "Answer:" (any emphasis, "Final answer:", "Answer to part 2:", a heading),
   the content of ``\boxed{}``, what follows ``####`` or "the answer is", or what follows a correction
   ("Wait,", "Sorry,") after an earlier statement. It ends where the next one begins.
4. Statements are tried from the last to the first; the first one that can be read is the answer.

No step looks more than ``WINDOW`` characters beyond the start of a statement, so reading takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from soft_reasoning.answers.reader import any_of

WINDOW = 2000
"""The most characters that are looked at beyond any place, so that reading takes linear time."""

_FULL_WIDTH = {0xFF01 + i: 0x21 + i for i in range(94)} | {0x3000: " ", 0x3002: ".", 0x202F: "\u00a0"}
_THOUGHT = re.compile(
    r"[<\[◁](?P<open>/?)(?:think|thinking|thought|reasoning|scratchpad)[>\]▷]|final<\|message\|>",
    re.IGNORECASE,
)
_STRUCK = re.compile(
    r"~~(?=\S)[^~\n]{1,200}~~|<(?P<tag>del|s|strike)>[^<\n]{1,200}</(?P=tag)>"
    r"|\\(?:[bx]?cancel|sout|st)\{[^{}\n]{1,200}\}|\$?\\(?:blacksquare|square|qed)\b\$?"
)
_NOTE_MARK = re.compile(r"\[\^\w{1,20}\](?!:)")
_FOOTNOTE = re.compile(r"(?:(?<=\n)|^)[ \t]{0,3}(?:\[\^\w{1,20}\]:|(\[\d{1,2}\]:?|[¹²³⁴⁵⁶⁷⁸⁹])[ \t])[^\n]*")
_TESTING = any_of("verify, check, confirm, double-check, double check, validate")
_REMARK = re.compile(
    r"(?<![^\s(*_>#-])(?<![Ff]act\s)(?:"
    r"(?:(?:[Dd]ouble|[Ss]anity|[Qq]uick|[Cc]ross)[ -])?(?:[Cc]heck(?:ing)?|[Vv]erif(?:y|ication"
    r"|ying))(?:\s(?:this|our\swork))?[*_]{0,2}\s?:"
    r"|(?:This|That|It|Which)\s(?:can\sbe\s(?:verified|checked|confirmed)|matches|checks\sout"
    r"|is\sconsistent|agrees)\b"
    r"|(?:Substituting|Plugging|Putting|Inserting)\s(?:[\w=]+\s){0,4}?(?:back|in)\b"
    r"|Check\s(?:that|whether|if)\b|If\s(?:we|you|I)\s(?:substitute|plug|put|insert)\b"
    r"|(?:(?<=[^\w,;]\s)|(?<=\n))(?:Would\syou|Do\syou\s(?:want|need)|Want\s(?:me|to)|Shall\sI|Should\sI"
    r"|Can\sI\shelp"
    r"|Let\sme\sknow|Feel\sfree|Is\sthere\sanything)\b"
    r"|[Pp]roof[*_]{0,2}\s?[:.]|(?<=[.!?]\s)Indeed,|To\s" + _TESTING + r"(?=[,:]|\s(?:this|that|the\sanswer))"
    r"|(?:(?<=\n)|(?<=[\n.][ *_]))(?:Let['’]?s|Let\s(?:me|us)|We\scan)\s(?:\w+\s)?"
    + _TESTING
    + r"(?=[,:.]|\s(?:this|that|the\sanswer))"
    r"|(?<=\n\n)[(\[](?!Edit|[^\n]*answer)[^\n\]]*[)\]](?=\s*$)|(?<=\n)(?:\*\*)?(?:References|Sources|P\.?S\.?|(?:Key|Common)\s\w+)(?=[\s:*])"
    r"|(?<=\n)(?:[*_>#-]{0,4}[ \t]?)(?:[Kk]ey\s)?(?:[Tt]akeaways?|N(?:ote|B|OTE)|Tip|Remark|Fun\sfact"
    r"|P\.?S\.?|[Cc]onfidence"
    r"|Disclaimer|Sources?|Assumptions?|Units?|Why|Difficulty|Certainty|Steps|Method"
    r"|Time\staken)\b[*_]{0,2}\s?[:?]"
    r")"
)
"""How a remark on an answer that was given begins."""
_RESUMES = re.compile(
    r"\n[ \t]*\n|\b(?:[Aa]nswer|ANSWER|[Ww]ait|[Aa]ctually|[Oo]ops|[Ss]orry)\b|box|####"
    r"|(?:(?<=\n)|(?<=[.!?✓✔✅]\s))(?:So|Thus|Therefore|Hence|Finally|However|But|In\sconclusion)\b"
)
_WORD = re.compile(r"\w")

_QUESTION = any_of(
    "Question, QUESTION, Problem, PROBLEM, Exercise, Example, Task, Puzzle, Riddle, Prompt, Input, "
    "Statement, "
    "Instruction, Query, Frage, Aufgabe, Pregunta, Problema, Ejercicio, Exercice, Problème, Вопрос, Задача"
)
_FURTHER = any_of("Next, Another, New, Similar, Follow-up, Followup, Bonus, Extra, Practice, Related, Second")
_HEADING = re.compile(
    r"(?:(?<![A-Za-z-])(?P<inline>(?:Question|QUESTION|Problem|PROBLEM"
    r"|Input)[ \t]{0,3}(?P<count>\d{0,3})\s{0,3}:)"
    r"|(?:(?<=\n)|(?<=\n ))[ \t#*_>(-]{0,8}(?:"
    rf"(?P<further>[A-Z][\w-]+\s(?:question|problem|exercise|task|example"
    rf"|puzzle)\s?\d{{0,3}}[*_]{{0,3}}\s?:|{_FURTHER}(?:\s(?i:{_QUESTION}"
    rf"|one))?[ \t]{{0,2}}\d{{0,3}}[*_]{{0,3}}\s?:"
    r"|(?:Now|You\scan|Your\sturn)[,:]?\s(?:try|it['’]s\syour\sturn)\b|Try\s(?:this|another)\b|What\sif\b"
    rf"|(?:Another|Next|A\ssimilar|Follow-?up)\s(?i:{_QUESTION}|one)\b)"
    rf"|(?P<line>{_QUESTION}|Q(?=[ \t]?\d{{0,3}}[:.)])|User:|Human:|问题|题目|例)"
    r"[ \t#]{0,3}(?P<number>\d{0,3})[*_]{0,3}[ \t]?[:.)\n*])"
    r"|(?P<turn><\|[a-z_]{2,20}\|>|</s>|<eos>|<(?:start|end)_of_turn>|\[INST\]"
    r"|\#{2,3}\s?(?:Instruction|Input|User|Human)\b))"
)
_ASKING = re.compile(
    r"(?:^|\n)[ \t]*(?P<line>[^\n]{3,600}[?？](?=[\s*_\"')]*\n\s*\S)"
    r"|[^\n?]{0,400}\b(?:How\s(?:many|much|long|far|old|tall|often)|What\s(?:is|was|are|were)"
    r"|Which)\b[^\n?]{3,200}\?"
    r"|[^\n?]{0,400}[.!]\s(?:Find|Calculate|Compute|Determine)\s[^\n?]{3,200}\.(?=\s*\n))"
)
_CONCLUDING_LINE = re.compile(
    r"(?:^|[.!?]\s)[\s*_]*(?:So|Thus|Therefore|Hence|In\s(?:total|conclusion))\b[^\n]*$"
)
_OF_OWN_ANSWER = re.compile(
    r"\W*(?:Wait|Hmm|But|Actually|Hold|However|And|So|Let|OK|Okay|Right|Is|Does|Did|Do|Are|Am|Can|Could"
    r"|Should)\b"
    r"[^?]{0,12}\b(?:that|this|it|he|she|they)\b|\W*(?:Wait|Hmm|But|Actually|Hold\son|However)\b"
    r"|.*\b(?:I|we|my|our|me)\b"
)
"""A question by which a model doubts or explains what it just answered."""


class _Heading(NamedTuple):
    begin: int
    number: int | None
    further: bool


def prepared(text: str) -> str:
    """``text`` of the same length, with blanks for what is not the answer and plain spaces and colons."""
    if not text.isascii():
        text = text.translate(_FULL_WIDTH)
        text = re.sub(r"(?<!\d)\u00a0|\u00a0(?!\d)", " ", text)
    if thoughts := [*_THOUGHT.finditer(text)]:
        end = thoughts[-1].end() if thoughts[-1]["open"] != "" else len(text)  # cut while it thinks
        if _WORD.search(text, end) or end == len(text) and thoughts[-1]["open"] == "":
            text = " " * end + text[end:]
    if "~~" in text or "</" in text or "\\" in text:
        text = _STRUCK.sub(_blank, text)
    if "[" in text or not text.isascii():
        text = _without_footnotes(text)
    return _without_remarks(text)


def _blank(matched: re.Match[str]) -> str:
    return " " * len(matched.group())


def _without_footnotes(text: str) -> str:
    for mark in {footnote[1].rstrip(":") for footnote in _FOOTNOTE.finditer(text) if footnote[1]}:
        first = text.find(mark)
        if text.rfind("\n", 0, first) + 1 < len(text[:first].rstrip()):  # it stands behind something
            text = re.sub(rf"{re.escape(mark)}(?:[: \t][^\n]*)?(?=\n|$)|{re.escape(mark)}", _blank, text)
    text = re.sub(r"(?:(?<=\n)|^)\[\^\w{1,20}\]:[^\n]*", _blank, text)
    return _NOTE_MARK.sub(_blank, text)


def _without_remarks(text: str) -> str:
    pieces: list[str] = []
    done = 0
    for remark in _REMARK.finditer(text):
        begin = remark.start()
        if begin < done or not _WORD.search(text, done, begin):
            continue
        resumes = _RESUMES.search(text, remark.end(), remark.end() + WINDOW)
        end = resumes.start() if resumes else min(len(text), remark.end() + WINDOW)
        pieces += [text[done:begin], " " * (end - begin)]
        done = end
    return "".join([*pieces, text[done:]])


def own_end(text: str, answered: int | None) -> int:
    """Where another question begins after the first statement (``answered``), or after anything.

    A numbered question before the first statement means that the model splits its question; then later
    numbers do not end the text.
    """
    start = 0 if answered is None else answered
    split = False
    end = len(text)
    for heading in _headings(text):
        if heading.begin >= start and not _WORD.search(text, start, heading.begin):
            split = split or heading.number is not None
        elif heading.begin < start and not _WORD.search(text, 0, heading.begin):
            split = split or heading.number is not None
        elif (heading.begin >= start or heading.further or _concluded(text, heading.begin)) and not (
            split and heading.number is not None
        ):
            end = heading.begin
            break
    if answered is None:
        return end
    if _ASKING.search(text[:answered]):
        return end
    for asking in _ASKING.finditer(text, start, end):
        if (
            asking.start() > start
            and not _OF_OWN_ANSWER.match(asking["line"])
            and _WORD.search(text, start, asking.start())
        ):
            return asking.start()
    return end


def _concluded(text: str, end: int) -> bool:
    """Whether the line before ``end`` concludes."""
    before = text[max(0, end - WINDOW) : end].rstrip(" \n#*_>(-")
    return _CONCLUDING_LINE.search(before.rpartition("\n")[2]) is not None


def _headings(text: str) -> Iterator[_Heading]:
    for matched in _HEADING.finditer(text):
        digits = matched["count"] or matched["number"]
        number = int(digits) if digits else None
        yield _Heading(matched.start(), number, bool(matched["further"]) or (number or 0) > 1)


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
