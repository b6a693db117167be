"""Reading booleans.

1. A verdict is a word such as yes, no, true, false, correct, nope (``verdicts`` has all); "not" before it
   negates it. "The claim holds" is one too, and so are "It does." and "They were not."
2. A statement gives its first verdict. A conclusion ("so", "therefore") overrides what precedes it, unless
   the statement begins with a verdict. "not necessarily true", "maybe" and "it depends" are not verdicts, and
   a statement that holds one has no answer.
3. A text without a statement gives its last verdict at the end of a clause. The verdict that it begins with
   counts more, unless the last one concludes.
4. Where there is no verdict, a conclusion restates the question, and its verb says yes or no: "So they could
   have met", "Thus he did not use it".
"""

from __future__ import annotations

import re

from soft_reasoning.answers.own_text import WINDOW
from soft_reasoning.answers.reader import REFUSAL, Found, any_of, first_line, last_match
from soft_reasoning.answers.readers.verdicts import (
    BOTH,
    CHINESE,
    CHINESE_HEDGE,
    COMMITS,
    CONCEDED,
    HAN,
    HEDGE,
    IDIOMS,
    SHORT,
    VERDICT,
    truth,
)  # fmt: skip
from soft_reasoning.answers.rewriting import Rewriter

_WORD = re.compile(r"\w")
_LETTERS = re.compile(r"[^\W\d_]")
_LETTER = re.compile(r"\W*(?:(?P<yes>y)|(?P<no>n))\W*", re.IGNORECASE)
_CONCLUSION = re.compile(r"[,;:.]\s{0,3}(?:and\s)?(?:so|therefore|thus|hence)\b(?!\sthat\b)", re.IGNORECASE)
_SO = "so, therefore, thus, hence"
_CONCLUDES = re.compile(
    rf"\b{any_of(f'{_SO}, overall, conclusion, conclude, finally, final, answer, wait, actually')}\b", re.I
)
_BEFORE = re.compile(
    rf"(?:(?:^|[.!?,;:\n])\s{{0,3}}|(?:\b{any_of(f'{_SO}, is, be, was, say, says, but, ist, est, es, это')}\s"
    r"|(?:\breturn|[=|])\s)\s*(?:(?:indeed|therefore|in\sfact|(?!only|hardly|barely|rarely)\w{2,12}ly)\s+)?"
    r"|['’]s\s+|\bmakes\s[\w\s]{1,30}\s)[\"'“*(]{0,3}$",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"[\"'”*)]{0,3}(?:\s{0,9}(?:[.,!;:|\n]|$)|\s(?:that|to\ssay|[-–—]|(?:on|to|for)\s(?:this|that))\s"
    r"|\s+(?:because|since|as)\b[^.!?\n]*)",
    re.IGNORECASE,
)
_OPENING = re.compile(r"\W*(?:(?:so|well|in\sshort),?\s)?", re.IGNORECASE)
_PLAIN_VERDICT = re.compile(
    rf"{any_of('yes, yep, yeah, yup, true, correct, oui, ja, sí, да, non, nein, нет, no, nope, nah, false')}"
    r"|incorrect|wrong|(?:absolutely\s|definitely\s)?not(?:\sat\sall)?|no\sway",
    re.IGNORECASE,
)
"""Verdicts that open a text. Others may open a reply instead: "Sure! Let us see"."""
_VERDICT_ENDS = re.compile(r"[\"'”)]{0,3}\s{0,3}(?:[,.!;:\n–—-]|$)")
_SENTENCE = re.compile(r"(?:(?<=[.!?])[ \t]+(?=[A-Z\"'“])|\n)\s*")
_CONCLUDING = re.compile(
    rf"(?:^\W*(?:and\s)?|[,;:]\s)(?:{any_of('so, thus, therefore, hence, consequently, in conclusion')}"
    rf"|{any_of('in short, overall, as a result, this means')})\b(?!\sthat\b)",
    re.IGNORECASE,
)
_SAYS = any_of("say, conclude, see, infer, assume, deduce, determine, tell, be said, be concluded")
_VERB = re.compile(
    r"\b(?:(?P<modal>could|would|can|did|does|do|will|should|must)|won(?=['’])|is|are|was|were|has|have|had)"
    rf"(?P<denied>n?['’]t\b|not\b|\s(?:\w+\s)?(?:not|never|hardly)\b)?(?!\s{_SAYS}\b)",
    re.IGNORECASE,
)
_UNSURE = re.compile(
    r"\b(?:may|might|maybe|perhaps|possibly|unclear|unsure|uncertain|depends?|neither\s\w+\snor)\b",
    re.IGNORECASE,
)
_LONGEST_SHORT = 80
_PLAIN = Rewriter(
    (r"\\(?:text|mathrm|mathbf|textbf)\s?\{([^{}]*)\}", r"\1"),
    (r"(?:(?<=[:|])|^)[*\s]{0,4}[✅✔✓☑]\ufe0f?(?=\s{0,3}(?:\||$))", " yes"),
    (r"(?:(?<=[:|])|^)[*\s]{0,4}[❌✗]\ufe0f?(?=\s{0,3}(?:\||$))", " no"),
    (r"[*$`\\{}\[\]✅❌✔✓✗☑\ufe0f]", ""),
    (IDIOMS, " "),
)


class BooleanReader:
    """Reads booleans; a :class:`~soft_reasoning.answers.reader.Reader`."""

    def read(self, statement: str) -> Found | None:
        start, stop = first_line(statement)
        if not _LETTERS.search(statement, start, stop):
            return None
        line = _PLAIN(statement[start:stop])
        if letter := _LETTER.fullmatch(line):
            return _found(letter, start, stop)
        if HAN.search(line):
            return _in_chinese(line, CHINESE.search(line), start, stop)
        if BOTH.search(line):
            return Found(None)
        begin = conceded.end() if (conceded := CONCEDED.match(line)) else 0
        verdict = VERDICT.search(line, begin)
        opens = verdict is not None and not _WORD.search(line, begin, verdict.start())
        hedge = HEDGE.search(line, begin)
        if hedge and not (
            opens and verdict and verdict.end() <= hedge.start() and _VERDICT_ENDS.match(line, verdict.end())
        ):
            commits = COMMITS.search(line, hedge.end())
            verdict = VERDICT.search(line, commits.end()) if commits else None
            return _found(verdict, start, stop) if verdict else Found(None)
        if verdict and opens:
            return _found(verdict, start, stop)
        if (refusal := REFUSAL.search(line)) and not VERDICT.search(line, refusal.end()):
            return Found(None)
        for conclusion in _CONCLUSION.finditer(line):
            verdict = VERDICT.search(line, conclusion.end()) or verdict
        if verdict:
            return _found(verdict, start, stop)
        return _short(statement) or _restated(statement, max(0, len(statement) - WINDOW))

    def opens(self, statement: str) -> bool:
        start, stop = first_line(statement)
        if not _LETTERS.search(statement, start, stop):
            return False
        line = _PLAIN(statement[start:stop])
        if HAN.search(line):
            return CHINESE.match(line.lstrip()) is not None
        verdict = VERDICT.search(line)
        return verdict is not None and not re.search(r"\w{3}", line[: verdict.start()])

    def close(self, text: str) -> Found | None:
        from_end = max(0, len(text) - WINDOW)
        plain = _PLAIN(text[from_end:])
        if HAN.search(plain):
            first = None if from_end else CHINESE.match(plain)
            return _in_chinese(plain, first or last_match(CHINESE, plain), from_end, len(text))
        last_break = last_match(_SENTENCE, plain.rstrip())
        begin = last_break.end() if last_break else 0
        hedge = HEDGE.search(plain, begin)
        if BOTH.search(plain, begin) or (hedge and not COMMITS.search(plain, hedge.end())):
            return None
        opening, closing = _opening(text), _closing(plain)
        if closing and (not opening or _CONCLUDES.search(plain, max(0, closing.start() - 80), closing.end())):
            return _found(closing, from_end, len(text))
        letter = _LETTER.fullmatch(text)
        return (
            opening or (letter and _found(letter, 0, len(text))) or _short(text) or _restated(text, from_end)
        )

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        return _canonical(a) == _canonical(b)


def _in_chinese(line: str, verdict: re.Match[str] | None, start: int, stop: int) -> Found | None:
    return None if verdict is None or CHINESE_HEDGE.search(line) else _found(verdict, start, stop)


def _short(text: str) -> Found | None:
    if len(text) > _LONGEST_SHORT or (sentence := SHORT.fullmatch(_PLAIN(text))) is None:
        return None
    return Found(str(not sentence["denied"]), *sentence.span(), _PLAIN, 0, len(text))


def _closing(plain: str) -> re.Match[str] | None:
    """The last verdict at the end of a clause."""
    last, done = None, 0
    for verdict in VERDICT.finditer(plain):
        begin, end = verdict.span()
        anywhere = verdict["true"] or verdict["false"] or verdict["open"]
        plainly = verdict["yes"] or verdict["no"] or verdict["outright"]
        clause_ends = _AFTER.match(plain, end) if begin >= done and (anywhere or plainly) else None
        if clause_ends and (anywhere or _BEFORE.search(plain, max(0, begin - 60), begin)):
            last, done = verdict, clause_ends.end()  # a reason holds no verdict
    return last


def _opening(text: str) -> Found | None:
    """The verdict that a text begins with: "No. It melts"."""
    stop = min(len(text), 200)
    head = _PLAIN(text[:stop])
    verdict = VERDICT.search(head)
    if verdict is None or _OPENING.fullmatch(head, 0, verdict.start()) is None:
        return None
    alone = _SENTENCE.search(text.strip()) is None
    if _VERDICT_ENDS.match(head, verdict.end()) and (alone or _PLAIN_VERDICT.fullmatch(verdict.group())):
        return _found(verdict, 0, stop)
    return None


def _restated(text: str, begin: int) -> Found | None:
    """What the last sentence says, if it concludes or is the only one: by a verdict in it, else by its verb.

    A modal verb restates the question; another verb may state a fact on the way, unless it is negated.
    """
    plain = _PLAIN(text[begin:]).rstrip()
    breaks = last_match(_SENTENCE, plain)
    start = breaks.end() if breaks else 0
    sentence = plain[start:]
    if sentence[-1:] not in (".", "!") or _UNSURE.search(sentence) or REFUSAL.search(sentence):
        return None
    concluding = _CONCLUDING.search(sentence)
    if concluding is None and breaks:
        return None
    start += concluding.end() if concluding else 0
    for verdict in VERDICT.finditer(plain, start):
        if not verdict["sure"] and not verdict["verb"] and verdict.group().lower() not in ("right", "likely"):
            return _found(verdict, begin, len(text))
    for verb in _VERB.finditer(plain, start):
        if verb["modal"] or verb["denied"]:
            return Found(str(not verb["denied"]), *verb.span(), _PLAIN, begin, len(text))
    return None


def _canonical(answer: str) -> str:
    found = BooleanReader().read(answer)
    return found.answer if found and found.answer else answer.strip()


def _found(verdict: re.Match[str], offset: int, stop: int) -> Found:
    groups = verdict.groupdict()
    name = next((name for name in ("a_yes", "a_no") if groups.get(name)), 0)
    return Found(truth(verdict), *verdict.span(name), _PLAIN, offset, stop)
