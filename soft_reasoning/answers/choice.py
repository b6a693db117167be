"""Reading the letter of a choice.

1. Denied letters ("not A", "A is false", "rather than A", "eliminating A and B") are excluded.
2. "A and B" is not a choice.
3. A conclusion ("so B", "but C", "leaves C") overrides what precedes it, unless the statement begins
   with its letter; otherwise the first letter counts.
4. A text without a statement gives the last letter that it chooses ("(B)", "B is correct", "I would
   choose option D"), else the only letter of its last sentence, else its first letter ("B) Paris").
"""

from __future__ import annotations

import re

from soft_reasoning.answers.reader import Found, Rewriter, any_of, first_line, last_match

_LETTERS = r"\(?[A-Z]\)?(?:(?:,\s\(?[A-Z]\)?){0,9},?\s(?:and|or|nor|&)\s\(?[A-Z]\)?)?"
_ALL_BUT = re.compile(
    r"\b(?:[Ee]verything|[Aa]ll|[Ee]very\s\w+|[Aa]ny\w*)\s(?:\w+\s)?(?:except"
    r"|but)\s(?:for\s)?\(?([A-Z])\)?(?=\s(?:is|are|can)\b)"
)
_EXCEPT = any_of(
    "[Nn]ot, [Nn]either, [Rr]ather than, [Ii]nstead of, [Oo]ver, than, [Ee]liminating, [Ee]xcluding, "
    "[Rr]uling out, [Bb]etween, [Aa]mong"
)
_OUT = re.compile(
    rf"(?<![A-Za-z'’]){_EXCEPT}\s(?:(?:options?|answers?|choices?)\s)?{_LETTERS}(?![A-Za-z])"
    rf"|(?:\b[Bb]oth\s)?(?<![A-Za-z'’]){_LETTERS}\s(?:is|are)\s(?:all\s|both\s|also\s)?"
    r"(?:not\b|wrong|false|incorrect|impossible|eliminated|excluded|ruled\sout|too\s)"
    rf"|n['’]t\s(?:be\s)?{_LETTERS}(?![A-Za-z'’])|\bso\s(?:is|are)\s{_LETTERS}(?=\W)"
    r"|(?<![A-Za-z'’])\(?[A-Z][\s).:|–-]{1,5}(?:[Nn]o|[Ww]rong|[Ff]alse|[Ii]ncorrect)\b|\b[A-Z]\s?[✗❌]"
)
_RIGHT_WORDS = any_of(
    "correct, right, best, better, true, one, answer, choice, option, likely, plausible, accurate"
)
_UNSETTLED = rf"(?:{any_of('maybe, perhaps, possibly, could be, might be, may be, can be')}\s)"
_JOINED = re.compile(
    rf"(?<![\w'’(])(?:(?i:both|either)\s|(?i:{_UNSETTLED}))?\(?[A-Z]\)?(?:,\s?\(?[A-Z]\)?){{0,9}}"
    rf"(?:\s?/\s?|,?\s(?:{any_of('and, or, nor, und, oder, et, ou, y, o, и, или')}"
    rf"|&)\s)(?i:{_UNSETTLED})?\(?[A-Z]\)?(?![\w'’)])"
    rf"|\b(?i:{_UNSETTLED})\(?[A-Z]\)?(?![\w'’])"
)
"""Several letters, or one that is not settled on."""
_LEADS = any_of(
    "is, are, be, was, make, makes, believe, feel, know, confident, pick, choose, chose, picked, "
    "select, say, option, options, choice, choices, "
    "letter, answer, mark, "
    "circle, enter, take, with, so, thus, hence, therefore, then, only, also, not, that, leaves, "
    "leaving, it, than, like, "
    "unlike, and, or, but, of, for, to, guess, think, over, does, est, ist, es, la, le, die, der, "
    "result, right, correct, "
    "best, finally, anything, now, here, because, since, as, if, when, while, where, which, by, in, on, "
    "at, from, between, "
    "among, except, instead, rather, either, neither, both, namely, definitely, probably, clearly, "
    "likely, you, I, we"
)
_NAMED = re.compile(
    rf"\b(?!(?i:{_LEADS})\b)(?:[A-Za-z]{{2,30}}|(?:Mr|Mrs|Ms|Dr|St"
    rf"|Prof)\.)\s(?!A\s)[A-Z](?![\w'’)])(?!\s(?:is\s(?:the\s)?{_RIGHT_WORDS}|because|since|as)\b)"
    r"|(?<![\w.])(?:[A-Z]\.\s){2,9}(?=[A-Za-z])|(?<![\w'’])[A-G]\s(?:major|minor|sharp|flat)\b"
)
"""A letter that is part of a name: vitamin C, Malcolm X, J. K. Rowling, C major."""
_RIGHT = (
    rf"(?=[\"”]?\s+(?:is\s+(?:the\s+|my\s+)?(?:(?:only|more|most)\s+)?{_RIGHT_WORDS}"
    r"|does|fits|works|stands|matches|remains)\b)"
)
_CHOICE = re.compile(
    r"\((?P<round>[A-Za-z])\)|\b(?:option|choice|letter)\s+\(?(?P<named>[A-Za-z])\b"
    r"|(?<![A-Za-z'’])(?P<marked>[A-Za-z])(?=\s?(?:[).:,;\]\[]|$|\n)|\s+[-–—]\s)"
    rf"|(?<![A-Za-z'’])(?P<bare>[B-HJ-Z](?![A-Za-z'’])|[AI]{_RIGHT})",
    re.IGNORECASE,
)
_CHOOSING = any_of(
    "choose, pick, select, go with, going with, obviously, clearly, choice, option, "
    "letter, solution, must be, has to be, leaves, so, therefore, thus, hence, only"
)
_CHOSEN = re.compile(
    r"(?<!\w)\(([A-Za-z])\)"
    rf"|(?<!or )(?<![A-Za-z'’])([A-Z]){_RIGHT}"
    rf"|\b(?i:{_CHOOSING}),?\s?(?:is|:)?\s(?:the\s)?(?:option\s|choice\s|letter\s)?"
    r"\(?([B-HJ-Z]|[AI](?=\W{0,2}$|[.,:;)]|\n|\s(?:because|since|as)\b))(?![A-Za-z'’])"
    r"|\b[Oo]nly\s([A-Z])\s[a-z]|\bmakes?\s([A-Z])\s(?:correct|right|the)\b"
    r"|\b(?i:answer)\s([A-Z])(?![\w'’])|\b(?i:option|choice|letter):?\s([A-Z]|[a-z](?=\W{0,3}$))(?![\w'’])"
    r"|(?<![A-Za-z'’])([A-Z])[\s).:|–-]{1,5}(?:just\s)?(?:[Yy]es|[Rr]ight|[Tt]rue|[Cc]orrect)\b|\b([A-Z])\s?[✓✔✅]"
    r"|\bis:?\s\(?([A-Z])\)?(?=\W{0,3}$)"
    r"|^\W*(?:[Oo]ption|[Cc]hoice)\s([A-Z])\b"
)
_ALONE = re.compile(r"(?<![\w'’])([B-H]|A(?=\W{0,2}$|[.,:;)]))(?![\w'’])")
_FIRST = re.compile(r"\W*(?:([A-Z])[).:]|([a-h])[).])\s")
_FIRST_LINE = re.compile(r"\W*([A-H])\W*(?=\n)")
_PLAIN = Rewriter(
    (r"\\(?:text|mathrm|mathbf|textbf)\s?\{([^{}]*)\}", r"\1"),
    (r"[*$`_\"“”{}\\]", ""),
    (_NAMED, "~"),
    (_ALL_BUT, r"(\1) while the rest"),
    (_OUT, "~"),
    (_JOINED, "~"),
)


class ChoiceReader:
    """Reads choices; a :class:`~soft_reasoning.answers.reader.Reader`."""

    def read(self, statement: str) -> Found | None:
        start, stop = first_line(statement)
        line = _PLAIN(statement[start:stop])
        found = _letter(line)
        return None if found is None else _found(found, start, stop)

    def opens(self, statement: str) -> bool:
        start, stop = first_line(statement)
        if not re.search("[A-Za-z]", statement[start:stop]):
            return False
        line = _PLAIN(statement[start:stop])
        found = _letter(line)
        return found is not None and not re.search(r"\w{2}", line[: found.start()].replace("option", ""))

    def close(self, text: str) -> Found | None:
        offset = max(0, len(text) - 2000)
        plain = _PLAIN(text[offset:])
        last = (None if offset else _FIRST_LINE.match(plain)) or last_match(_CHOSEN, plain)
        if last is None and len(plain.split()) == 1:
            last = _letter(plain)
        last = last or _only_letter(plain)
        if last is not None:
            return _found(last, offset, len(text))
        head = min(len(text), 200)
        first = _FIRST.match(_PLAIN(text[:head]))
        return None if first is None else _found(first, 0, head)

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        return _canonical(a) == _canonical(b)


def _canonical(answer: str) -> str:
    found = ChoiceReader().read(answer)
    return found.answer if found and found.answer else answer.strip()


def _letter(line: str, begin: int = 0) -> re.Match[str] | None:
    for found in _CHOICE.finditer(line, begin):
        if not found["bare"] or found["bare"].isupper():
            return found
    return None


def _only_letter(plain: str) -> re.Match[str] | None:
    """The letter of the last sentence, where it names no other."""
    sentence_end = len(plain.rstrip(" \n.!"))
    begin = max(plain.rfind(". ", 0, sentence_end), plain.rfind("\n", 0, sentence_end)) + 1
    letters = list(_ALONE.finditer(plain, begin))
    return letters[0] if len({letter[1] for letter in letters}) == 1 else None


def _found(match: re.Match[str], offset: int, stop: int) -> Found:
    group = next(i for i, text in enumerate(match.groups(), start=1) if text)
    return Found(match[group].upper(), *match.span(group), _PLAIN, offset, stop)
