"""Reading booleans: the first verdict of a statement, or the last verdict of a text without one.

A verdict is a word such as yes, no, true, false, correct, nope. "not" before it negates it. A conclusion
("so", "therefore") overrides what precedes it, unless the statement begins with a verdict. "not necessarily
true", "maybe" and "it depends" are not verdicts, and a statement that holds one has no answer.
"""

from __future__ import annotations

import re

from soft_reasoning.answers.patterns import any_of, last_match
from soft_reasoning.answers.reader import Found
from soft_reasoning.answers.refusal import REFUSAL
from soft_reasoning.answers.rewriting import Rewriter

_YES = any_of(
    "yes, yeah, yep, yup, true, correct, right, accurate, absolutely, certainly, definitely, indeed, "
    "affirmative, "
    "plausible, possible, likely, probably, sure, of course"
)
_NO = any_of(
    "nope, nah, no, false, incorrect, wrong, untrue, inaccurate, never, impossible, implausible, "
    "unlikely, negative"
)
_TURNABLE = any_of("true, false, correct, right, accurate, possible, plausible, likely, wrong")
_TURNED = (
    r"(?:(?<![\w-])(?:not|cannot|can['’]?t|never)|n['’]t)[ \t]{1,3}(?:be[ \t])?"
    r"(?:(?:really|actually|a|at\sall)[ \t]|(?P<hedge>(?!so\b)\w+)[ \t])?(?:be[ \t])?"
    rf"(?P<turned>{_TURNABLE})"
)
_MODAL = any_of("could, would, can, did, does, will, should")
_ENDS = r"(?=\s*[.,;!]|\s*$)"
_SAID_SO = rf"(?P<so>(?:think|believe|say)\sso|\b{_MODAL}(?=[.!]?\s*$))"
_DENIED_SO = r"(?P<denied_so>(?:do\snot|don['’]t)\s(?:think|believe)\sso)"
_SURELY = any_of("definitely, absolutely, certainly, of course, probably, likely, surely")
_OUTRIGHT_NO = rf"(?P<outright>(?:{_SURELY}\s)?not(?:\sat\sall)?{_ENDS}|no\sway|{_MODAL}n['’]t{_ENDS})"
_NO_IDIOMS = any_of("doubt, longer, matter, one, need, evidence, reason, question")
_IDIOMS = re.compile(
    rf"\bno\s{_NO_IDIOMS}\b|\bwithout\s(?:a\s)?doubt\b|\bright\s(?:now|away|after|before)\b"
    r"|\b(?:yes\s?(?:or|/)\s?no|true\s?(?:or|/)\s?false|whether\s[^.:;\n]{0,80})\b",
    re.IGNORECASE,
)
"""Phrases that contain such words without being verdicts: "no doubt", "yes or no"."""
_NO_VERDICT = re.compile(r"^\W*(?:maybe|perhaps|it\sdepends|unclear|unsure|possibly)\b", re.IGNORECASE)
_VERDICT = re.compile(
    rf"{_TURNED}|{_DENIED_SO}|{_SAID_SO}|(?<![\w-]){_OUTRIGHT_NO}"
    rf"|(?<![\w-])(?:(?P<yes>{_YES})|(?P<no>{_NO}))(?![\w-])",
    re.IGNORECASE,
)
_LETTERS = re.compile("[A-Za-z]")
_LETTER = re.compile(r"\W*(?:(?P<yes>y)|(?P<no>n))\W*", re.IGNORECASE)
_CONCLUSION = re.compile(r"[,;:.]\s{0,3}(?:and\s)?(?:so|therefore|thus|hence)\b(?!\sthat\b)", re.IGNORECASE)
_BEFORE_CLOSING = (
    rf"(?:^|[.!?,;:\n]\s{{0,3}}|\b{any_of('so, therefore, thus, hence, is, be, was, say')}\s+"
    r"(?:(?:indeed|clearly|therefore)\s+)?|['’]s\s+|\bmakes\s[\w\s]{1,30}\s)"
)
_CLOSING = re.compile(
    rf"(?:{_TURNED}|{_BEFORE_CLOSING}[\"'“*(]{{0,3}}(?P<negation>not\s+)?"
    r"(?:(?P<yes>yes|true|correct)|(?P<no>no|false|incorrect|wrong|(?<!not\s)untrue)))[\"'”*)]{0,3}"
    r"(?:(?=\s{0,9}(?:[.,!;:\n]|$)|\s(?:that|to\ssay)\b)|\s+(?:because|since|as)\b[^.!?\n]*)",
    re.IGNORECASE,
)
_FIRST_WORD = re.compile(
    r"\W*(?:(?:so|well|in\sshort),?\s)?(?:(?P<yes>yes|yep|yeah)|(?P<no>no|nope))(?=[,.!;:]|\W*$)",
    re.IGNORECASE,
)
_PLAIN = Rewriter(
    (r"\\(?:text|mathrm|mathbf|textbf)\s?\{([^{}]*)\}", r"\1"), (r"[*$`\\{}]", ""), (_IDIOMS, " ")
)


class BooleanReader:
    """Reads booleans; a :class:`~soft_reasoning.answers.reader.Reader`."""

    def read(self, statement: str) -> Found | None:
        start, stop = first_line(statement)
        if not _LETTERS.search(statement, start, stop):
            return None
        line = _PLAIN(statement[start:stop])
        if letter := _LETTER.fullmatch(line):
            return _found(letter, str(bool(letter["yes"])), start, stop)
        if _NO_VERDICT.match(line):
            return Found(None)
        found = _VERDICT.search(line)
        if found and not re.search(r"\w", line[: found.start()]):
            return _found(found, _truth(found), start, stop)
        if (refusal := REFUSAL.search(line)) and not _VERDICT.search(line, refusal.end()):
            return Found(None)
        for conclusion in _CONCLUSION.finditer(line):
            if concluded := _VERDICT.search(line, conclusion.end()):
                found = concluded
        if found:
            return _found(found, _truth(found), start, stop)
        return None

    def opens(self, statement: str) -> bool:
        start, stop = first_line(statement)
        if not _LETTERS.search(statement, start, stop):
            return False
        line = _PLAIN(statement[start:stop])
        found = _VERDICT.search(line)
        return found is not None and not re.search(r"\w{3}", line[: found.start()])

    def close(self, text: str) -> Found | None:
        from_end = max(0, len(text) - 2000)
        plain = _PLAIN(text[from_end:])
        last = last_match(_CLOSING, plain)
        if last is not None:
            return _found(last, _truth(last), from_end, len(text))
        if first := _FIRST_WORD.match(_PLAIN(text[:200])):
            return _found(first, _truth(first), 0, min(len(text), 200))
        return None

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        return _canonical(a) == _canonical(b)


def first_line(statement: str) -> tuple[int, int]:
    """Return the start and end of the first line that holds a word."""
    word = re.search(r"\w", statement)
    if word is None:
        return 0, 0
    start = statement.rfind("\n", 0, word.start()) + 1
    end = statement.find("\n", word.start())
    return start, len(statement) if end < 0 else end


def _canonical(answer: str) -> str:
    found = BooleanReader().read(answer)
    return found.answer if found and found.answer else answer.strip()


def _truth(found: re.Match[str]) -> str | None:
    groups = found.groupdict()
    if groups.get("hedge"):  # "not necessarily true"
        return None
    if turned := groups.get("turned"):
        return str(turned.lower() in ("false", "wrong"))
    if groups.get("so"):
        return "True"
    if groups.get("denied_so") or groups.get("outright"):
        return "False"
    return str((groups["yes"] is not None) != (groups.get("negation") is not None))


def _found(match: re.Match[str], answer: str | None, offset: int, stop: int) -> Found:
    groups = match.groupdict()
    name = next((n for n in ("yes", "no") if groups.get(n)), None)
    start, end = match.span(name) if name and not groups.get("negation") else match.span()
    return Found(answer, start, end, _PLAIN, offset, stop)
