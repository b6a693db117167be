"""Reading booleans.

1. A verdict is a word such as yes, no, true, false, correct, nope; "not" before it negates it. "The claim
   holds" is one too.
2. A statement gives its first verdict. A conclusion ("so", "therefore") overrides what precedes it, unless
   the statement begins with a verdict. "not necessarily true", "maybe" and "it depends" are not verdicts, and
   a statement that holds one has no answer.
3. A text without a statement gives its last verdict at the end of a clause, else the verdict it begins with.
4. Where there is no verdict, a conclusion restates the question, and its verb says yes or no: "So they could
   have met", "Thus he did not use it".
"""

from __future__ import annotations

import re

from soft_reasoning.answers.patterns import any_of, last_match
from soft_reasoning.answers.reader import Found
from soft_reasoning.answers.refusal import REFUSAL
from soft_reasoning.answers.rewriting import Rewriter
from soft_reasoning.answers.statements import WINDOW

_SURELY = any_of("absolutely, certainly, definitely, likely, probably, surely, sure, of course")
_YES = (
    any_of(
        "yes, yeah, yep, yup, true, correct, right, accurate, indeed, affirmative, plausible, possible, "
        "no doubt, without a doubt, without doubt"
    )
    + rf"|{_SURELY}(?!\W{{0,3}}{any_of('yes, no, not, true, false, correct, incorrect, wrong')}\b)"
)
_NO = any_of(
    "nope, nah, no, false, incorrect, wrong, untrue, inaccurate, never, impossible, implausible, "
    "unlikely, negative"
)
_TURNS_FALSE = any_of("true, correct, right, accurate, possible, plausible, likely")
_TURNS_TRUE = any_of("false, wrong, untrue, incorrect, inaccurate, unlikely, impossible, implausible")
_TURNED = (
    r"(?:(?<![\w-])(?:not|cannot|can['’]?t|never)|n['’]t)[ \t]{1,3}(?:be[ \t])?"
    r"(?:(?:think|believe)[ \t](?:[\w'’]+[ \t]){1,6}?(?:is|was|be)[ \t])?"
    r"(?:(?:really|actually|a|at\sall)[ \t]|(?P<hedge>(?!so\b)\w+)[ \t])?(?:be[ \t])?"
    rf"(?:(?P<turned_false>{_TURNS_FALSE})|(?P<turned_true>{_TURNS_TRUE}))"
)
_MODAL = any_of("could, would, can, did, does, will, should")
_ENDS = r"(?=\s*[.,;!]|\s*$)"
_SAID_SO = rf"(?P<so>(?:think|believe|say)\sso|\b{_MODAL}(?=[.!]?\s*$))"
_DENIED_SO = r"(?P<denied_so>(?:do\snot|don['’]t)\s(?:think|believe)\sso)"
_OUTRIGHT_NO = (
    rf"(?P<outright>(?:{_SURELY}\s)?not(?:\sat\sall|\sreally)?{_ENDS}|no\sway|{_MODAL}n['’]t{_ENDS})"
)
_HOLDS = (
    r"\b(?:statement|claim|assertion|premise|this|that)\s"
    r"(?P<denied_hold>(?:does\snot|doesn['’]t|cannot|can['’]t)\s)?"
    rf"(?P<hold>holds?|stands?|checks?\sout)(?:\s(?:up|true|water))?{_ENDS}"
)
_NO_IDIOMS = any_of("doubt, longer, matter, one, need, evidence, reason, question")
_IDIOMS = re.compile(
    rf"\bno\s{_NO_IDIOMS}\b(?!\W*$)|\bwithout\s(?:a\s)?doubt\b(?!\W*$)|\bright\s(?:now|away|after|before)\b"
    r"|\b(?:yes\s?(?:or|/)\s?no|true\s?(?:or|/)\s?false|whether\s[^.:;\n]{0,80})\b",
    re.IGNORECASE,
)
"""Phrases that contain such words without being verdicts: "no doubt", "yes or no"."""
_NO_VERDICT = re.compile(r"^\W*(?:maybe|perhaps|it\sdepends|unclear|unsure|possibly)\b", re.IGNORECASE)
_VERDICT = re.compile(
    rf"{_TURNED}|{_DENIED_SO}|{_SAID_SO}|{_HOLDS}|(?<![\w-]){_OUTRIGHT_NO}"
    rf"|(?<![\w-])(?:(?P<yes>{_YES})|(?P<no>{_NO}))(?![\w-])",
    re.IGNORECASE,
)
_LETTERS = re.compile("[A-Za-z]")
_LETTER = re.compile(r"\W*(?:(?P<yes>y)|(?P<no>n))\W*", re.IGNORECASE)
_CONCLUSION = re.compile(r"[,;:.]\s{0,3}(?:and\s)?(?:so|therefore|thus|hence)\b(?!\sthat\b)", re.IGNORECASE)
_BEFORE_CLOSING = (
    rf"(?:^|[.!?,;:\n]\s{{0,3}}|\b{any_of('so, therefore, thus, hence, is, be, was, say')}\s+"
    r"(?:(?:indeed|therefore|in\sfact|(?!only|hardly|barely|rarely)\w{2,12}ly)\s+)?|['’]s\s+|\bmakes\s[\w\s]{1,30}\s)"
)
_TRUE = any_of("true, correct, right, accurate, valid, possible, plausible, likely, the case")
_FALSE = any_of(
    "false, incorrect, wrong, untrue, inaccurate, invalid, impossible, implausible, unlikely, unfounded, "
    "a myth, a misconception"
)
_CLOSING = re.compile(
    rf"(?:{_TURNED}|{_HOLDS}|{_BEFORE_CLOSING}[\"'“*(]{{0,3}}(?P<negation>not\s+)?"
    rf"(?:(?P<yes>yes|{_TRUE})|(?P<no>no|{_FALSE})))[\"'”*)]{{0,3}}"
    r"(?:(?=\s{0,9}(?:[.,!;:\n]|$)|\s(?:that|to\ssay|[-–—]|(?:on|to|for)\s(?:this|that))\s)|\s+(?:because|since|as)\b[^.!?\n]*)"
    r"|\ba\s(?:\w{1,12}\s)?(?:(?P<a_yes>yes)|(?P<a_no>no))(?![\w-])",
    re.IGNORECASE,
)
_OPENING = re.compile(r"\W*(?:(?:so|well|in\sshort),?\s)?", re.IGNORECASE)
_PLAIN_VERDICT = re.compile(
    r"yes|yep|yeah|yup|true|correct|no|nope|nah|false|incorrect|wrong|(?:absolutely\s|definitely\s)?not(?:\sat\sall)?"
    r"|no\sway",
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
_JUDGED = re.compile(
    rf"{_TURNED}|{_HOLDS}|\b(?:(?P<yes>yes|true|correct|accurate|valid|possible|plausible)"
    rf"|(?P<no>no|never|{_FALSE}))(?![\w-])",
    re.IGNORECASE,
)
_SAYS = any_of("say, conclude, see, infer, assume, deduce, determine, tell, be said, be concluded")
_VERB = re.compile(
    r"\b(?:(?P<modal>could|would|can|did|does|do|will|should|must)|won(?=['’])"
    r"|is|are|was|were|has|have|had)"
    rf"(?P<denied>n?['’]t\b|not\b|\s(?:\w+\s)?(?:not|never|hardly)\b)?(?!\s{_SAYS}\b)",
    re.IGNORECASE,
)
_HEDGE = re.compile(
    r"\b(?:may|might|maybe|perhaps|possibly|unclear|unsure|uncertain|depends?)\b", re.IGNORECASE
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
        return _restated(statement, max(0, len(statement) - WINDOW))

    def opens(self, statement: str) -> bool:
        start, stop = first_line(statement)
        if not _LETTERS.search(statement, start, stop):
            return False
        line = _PLAIN(statement[start:stop])
        found = _VERDICT.search(line)
        return found is not None and not re.search(r"\w{3}", line[: found.start()])

    def close(self, text: str) -> Found | None:
        from_end = max(0, len(text) - WINDOW)
        last = last_match(_CLOSING, _PLAIN(text[from_end:]))
        if last is not None:
            return _found(last, _truth(last), from_end, len(text))
        return _opening(text) or _restated(text, from_end)

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


def _opening(text: str) -> Found | None:
    """The verdict that a text begins with: "No. It melts"."""
    stop = min(len(text), 200)
    head = _PLAIN(text[:stop])
    found = _VERDICT.search(head)
    if found is None or _OPENING.fullmatch(head, 0, found.start()) is None:
        return None
    alone = _SENTENCE.search(text.strip()) is None
    if _VERDICT_ENDS.match(head, found.end()) and (alone or _PLAIN_VERDICT.fullmatch(found.group())):
        return _found(found, _truth(found), 0, stop)
    return None


def _restated(text: str, begin: int) -> Found | None:
    """What the last sentence says, if it concludes or is the only one: by a verdict in it, else by its verb.

    A modal verb restates the question; another verb may state a fact on the way, unless it is negated.
    """
    plain = _PLAIN(text[begin:]).rstrip()
    breaks = last_match(_SENTENCE, plain)
    start = breaks.end() if breaks else 0
    sentence = plain[start:]
    if sentence[-1:] not in (".", "!") or _HEDGE.search(sentence) or REFUSAL.search(sentence):
        return None
    concluding = _CONCLUDING.search(sentence)
    if concluding is None and breaks:
        return None
    start += concluding.end() if concluding else 0
    if judged := _JUDGED.search(plain, start):
        return _found(judged, _truth(judged), begin, len(text))
    for verb in _VERB.finditer(plain, start):
        if verb["modal"] or verb["denied"]:
            return Found(str(not verb["denied"]), *verb.span(), _PLAIN, begin, len(text))
    return None


def _canonical(answer: str) -> str:
    found = BooleanReader().read(answer)
    return found.answer if found and found.answer else answer.strip()


def _truth(found: re.Match[str]) -> str | None:
    groups = found.groupdict()
    if groups.get("hedge"):  # "not necessarily true"
        return None
    if (
        groups.get("turned_false")
        or groups.get("denied_so")
        or groups.get("denied_hold")
        or groups.get("outright")
        or groups.get("a_no")
    ):
        return "False"
    if groups.get("turned_true") or groups.get("so") or groups.get("hold") or groups.get("a_yes"):
        return "True"
    return str((groups["yes"] is not None) != (groups.get("negation") is not None))


def _found(match: re.Match[str], answer: str | None, offset: int, stop: int) -> Found:
    groups = match.groupdict()
    name = next((n for n in ("yes", "no", "a_yes", "a_no") if groups.get(n)), None)
    start, end = match.span(name) if name and not groups.get("negation") else match.span()
    return Found(answer, start, end, _PLAIN, offset, stop)
