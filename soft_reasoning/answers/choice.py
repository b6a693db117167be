"""Choices: the letter of an option.

A letter counts where it names an option: at the beginning of a statement, in brackets, after "option", "is"
and the like. It must be offered, and no other option's text may follow it. Without a letter the text of an
option gives its letter; so it does in the last sentence alone where nothing marks the answer. An option that
its clause denies ("not B", "C is impossible") does not count, and two that count are none. "Both A and B" is
one option where the question lists it. Options that the text only lists again are not read.

Without a mark, an option that is all of the first line or sentence wins over reasons after it. Lines on
several options in turn give the one that they affirm, or the only one that they do not deny.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from soft_reasoning.answers.statement import Place, Reading
from soft_reasoning.answers.text import folded

_OFFERED = re.compile(r"(?:^|(?<=\s))\(?([A-Z])[).:]\s+(?=\S)")
_ALONE = (
    r"(?<![A-Z]\.[A-Z])(?!\w|\.[A-Z]|['’]\w|\s?[=+*^<_\\]|\s?/(?!\s?[A-Z]\b)|-\w|(?<=[AI])\s"
    r"(?!(?:is|as|because|since|and|or|nor|but|rather|was|cannot|looks|seems|makes|fits|to|together|along)\b"
    r"|(?<=A\s)(?:are|were|can|could|would|should|will|may|might|has|have|does|do|did)\b)[a-z])"
)
"""After a letter that is no part of a word, an abbreviation or a formula; A and I are words as well."""
_LETTER = re.compile(
    rf"""(?:(?P<named>^\W*(?:\\text\w*\{{)?|\b(?i:option|choice|letter|answer|is|be)[\s:*("'\[]{{1,4}})
      |[:;(\[{{>→,.!?]\s?|(?<!\w)["'“*]|\s[-–—]\s|\\text\w*\{{|(?<=[A-Z])\s?[&/]\s?\(?
      |\b(?i:it['’]s|only|pick|choose|chose|select|take|say|matches|with|for|or|and|nor|not|than|of|leaves?
        |leaving|so|thus|therefore|hence|both|either|neither|between|eliminat\w+|out|exclud\w+|discard\w+
        |reject\w+|but|then|on|to|as|that|because|since|while|although|believe|think|maybe|perhaps|\w+ly)[\s:*("'\[]{{1,4}})
    (?P<letter>[A-Z]|(?(named)[a-z](?=\)|\W*$)|(?!))){_ALONE}""",
    re.VERBOSE,
)
"""A letter that stands where one can name an option."""
_SINGLE = re.compile(rf"(?<![\w'’])(?<!\d\s)[A-Z]{_ALONE}")
_JOINS = re.compile(
    r"[)\]*\"'”]*\s?(?:,|&|/|and|or|nor|to|as well as|,? ?(?:together|along) with|, ?(?:and|or|nor))\s?"
    r"(?:(?:option|choice|in|at|an?|the|his|her|your)\s){0,2}"
    r"[(\[*\"'“]*"
)
"""Between letters that are named together."""
_BESIDE = re.compile(r"(?:,|\bor|\band)\s?[(\[*\"'“]*$")
"""Before a letter that is named beside one: "A (red) or B (blue)"."""
_IS = re.compile(r"[)\]*\"'”]*\s(?:is|was|looks|seems)\b")
"""After one letter: "A, and C is wrong"."""
_CLAUSE = re.compile(
    r"[.;:!?]\s|,\s|\s[-–—]\s|\("
    r"|\b(?:but|so|thus|therefore|hence|leaves?|leaving|because|since|as|which|wait)\b",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\b(?:not|cannot|never|neither|nor|while|although|though|than|instead of|contrary to|unlike|eliminat\w+"
    r"|exclud\w+|rul\w+ out|discard\w+|reject\w+)\b|n['’]t\b",
    re.IGNORECASE,
)
"""Before a letter that is denied, in its clause."""
_REFUTED = re.compile(
    r"\b(?:not|cannot|never|wrong|incorrect|false|impossible|out|eliminated|excluded|discarded|rejected|invalid"
    r"|tempting|plausible|unlikely|too)\b|n['’]t\b",
    re.IGNORECASE,
)
"""After it."""
_REJECTED = re.compile(
    r"[\s().:*–-]+(?:(?:no|incorrect|wrong|false|too \w+)\b|[❌✗✘])"
    r"|[^.;:]*\bbut (?:it|this|that)(?:['’]s| is| was) not\b",
    re.IGNORECASE,
)
"""Right after it, or as its end: "B is possible, but it is not"."""
_NOT = re.compile(r"\bnot\W*$")
"""Before the next letter: "A and not C"."""
_AMONG = re.compile(r"\W*(?:between|(?:out )?of|among)\b", re.IGNORECASE)
"""Before the letters that are chosen from."""
_WORDS = re.compile(r"[a-z]")
_TURNS = re.compile(r"\b(?:wait(?=\s?[^\w\s])|actually|scratch that|correction)\b", re.IGNORECASE)
_CONCLUDES = re.compile(r"\b(?:but|so|thus|therefore|hence|leaves?|leaving)\b", re.IGNORECASE)
_DOUBTS = re.compile(
    r"\b(?:maybe|perhaps|possibly|depends|unclear|unknown|partly|sometimes|whether|also|a possibility"
    r"|torn|not sure)\b",
    re.IGNORECASE,
)
_IF_NOT = re.compile(r"\bif\b[^,]*(?:\b(?:not|neither)\b|n['’]t\b)", re.IGNORECASE)
"""In a sentence that weighs options: "If that does not work, we can try a car"."""

_OPENS = re.compile(r"\W*(?:option|choice|letter|\\text\w*)?\W*", re.IGNORECASE)
_STANDS = re.compile(
    r"\W*$|[\s*\"'”’]*(?:[).:,;}(–—]|\s-\s|\s(?:is (?:the|correct|right)|because|since|as)\b(?!\swell\b))"
)
"""After a letter or text at the beginning of a statement that decides."""
_LINE = re.compile(
    r"^[ \t\"'(*>-]*(?:(?i:option|choice) )?([A-Z])(?:[).:](?!\w)|[ \t*]*$)[^\n]*", re.MULTILINE
)
"""A line that begins with an option, or holds only its letter."""
_AFFIRMED = re.compile(
    r"(?<!\bbe )\b(?:correct|true|yes|the (?:(?:right|best) )?(?:answer|choice|option))\b|[✓✔✅]",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"\b(?:no|not|cannot|never|wrong|incorrect|false|impossible|invalid|(?:eliminat|exclud|reject)ed)\b|n['’]t\b|[❌✗✘]",
    re.IGNORECASE,
)
"""In a line on an option, if it is the answer ("this could be correct" affirms nothing) and if it is not."""
_ENDS = re.compile(r"[)*\"'”]*(?:[.!](?!\w)|$)")
"""After the text of an option that is all of a line or sentence."""
_STATES = re.compile(
    r"^\W*(?:so|therefore|thus|hence)\b|\b(?:answer|correct|choose|pick|select|actually|wait|instead|final\w*)\b",
    re.IGNORECASE,
)
"""In a sentence that states an answer, not a reason."""


@lru_cache(maxsize=1024)
def options(question: str) -> dict[str, str]:
    """The texts of the options that a question lists, as (A) or A. or A:, by letter."""
    places: list[re.Match[str]] = []
    for match in _OFFERED.finditer(question):
        if match[1] == "A":
            places = [match]
        elif places and ord(match[1]) == ord(places[-1][1]) + 1:
            places.append(match)
    ends = [*(place.start() for place in places[1:]), len(question)][: len(places)]
    texts = [question[place.end() : end] for place, end in zip(places, ends, strict=True)]
    return {place[1]: text.strip().partition("\n")[0] for place, text in zip(places, texts, strict=True)}


def without_list(plain: str, question: str) -> str:
    """``plain`` with spaces in place of the options, if lines of it list two or more of them again."""
    listed = [
        match.span()
        for letter, text in options(question).items()
        for match in re.finditer(rf"^\W*{letter}[).:]\s*{re.escape(text.strip())}\s*$", plain, re.MULTILINE)
    ]
    for start, end in listed if len(listed) > 1 else ():
        plain = plain[:start] + " " * (end - start) + plain[end:]
    return plain


def read(statement: str, question: str = "", place: Place = "stated") -> Reading | None:
    """The letter that a statement gives; None if it holds none, without an answer if it is ambiguous."""
    offered, said = _offered(question), statement
    for letter, text in options(question).items():  # "Both A and B" is one option, not two
        if len(text) > 1 and offered.keys() & {*_SINGLE.findall(text)}:
            words = r"\s+".join(map(re.escape, text.strip().rstrip(".").split()))
            place_of = re.search(rf"(?<!\w){words}(?!\w)", statement, re.IGNORECASE)
            if place_of:
                start, end = place_of.span()
                statement = statement[:start] + letter.ljust(end - start) + statement[end:]
    plain = folded(statement)
    told = [Reading(letter, *m.span()) for letter, text in offered.items() for m in text.finditer(plain)]
    letters = _letters(statement)
    if letters and not (told and offered.keys().isdisjoint(letter.answer for letter in letters)):
        first = letters[0]
        after = folded(said[first.end :]).lstrip(").:*-–— ")
        own = offered.get(first.answer or "")
        other = any(text.match(after) for text in offered.values()) and not (own and own.match(after))
        return Reading(None) if other else _decided(statement, letters, offered, stands=True)
    if place == "earlier":  # a text names options by their words for other reasons as well
        return None
    told = [t for t in told if not any(o != t and o.start <= t.start and t.end <= o.end for o in told)]
    decided = _decided(plain, sorted(told, key=lambda t: t.start), offered, stands=False) if told else None
    if decided is None or decided.answer is None:
        return decided
    start = len(statement) - len(statement.lstrip())
    return Reading(decided.answer, start, len(statement.rstrip()))


def lines(text: str, question: str) -> list[re.Match[str]]:
    """The lines that comment on options, if they comment on two or more.

    A line before or after them that holds only an option is the answer, and is left out.
    """
    comments = [line for line in _LINE.finditer(text) if line[1] in options(question)]
    bare = [opening(line.group(), question) for line in comments]
    if len({reading.answer for reading in bare if reading}) == 1:
        first, last = ([line[1] for line in pair] for pair in (comments[:2], comments[-2:]))
        before = bare[0] is not None and first != sorted({*first})  # A, A, B or C, A, B
        after = bare[-1] is not None and last != sorted({*last})
        comments = comments[before : len(comments) - after]
    return comments if len({line[1] for line in comments}) > 1 else []


def compared(lines: list[re.Match[str]], question: str) -> Reading:
    """The option that lines on several affirm, or the only one that they do not deny; else no answer."""
    remarks = {line: _offered(question)[line[1]].sub("", folded(line.group())) for line in lines}
    possible = [line for line in lines if not _NEGATED.search(remarks[line])]
    possible = [line for line in possible if _AFFIRMED.search(remarks[line])] or possible
    if len({line[1] for line in possible}) != 1:
        return Reading(None)
    return Reading(possible[0][1], *possible[0].span(1))


def opening(text: str, question: str) -> Reading | None:
    """The option at the beginning of ``text`` if its line, or sentence, holds only its letter and text."""
    line = _LINE.match(text)
    own = _offered(question).get(line[1]) if line else None
    if line is None or own is None:
        return None
    rest = folded(text[line.end(1) : line.end()]).lstrip(").:* ")
    named = own.match(rest)
    bare = _ENDS.match(rest, named.end()) if named else not rest and ":" not in line.group()
    return Reading(line[1], *line.span(1)) if bare else None


def states(sentence: str, question: str) -> bool:
    """Whether a sentence states an answer of its own, and is no reason for another one."""
    return bool(_STATES.search(sentence) or opening(sentence, question))


def _letters(statement: str) -> list[Reading]:
    """The letters that a statement names, with those that it names together with them."""
    named = {m.span("letter") for m in _LETTER.finditer(statement)}
    places = sorted(named | {m.span() for m in _SINGLE.finditer(statement)}) if named else []
    for n, (start, _) in [*enumerate(places)][:0:-1]:
        if (start, _) in named and _JOINS.fullmatch(statement, places[n - 1][1], start):
            named.add(places[n - 1])
    return [Reading(statement[slice(*place)].upper(), *place) for place in places if place in named]


def _decided(
    statement: str, named: list[Reading], offered: Mapping[str, re.Pattern[str]], *, stands: bool
) -> Reading | None:
    """The option that a statement names and does not deny; None where the option at its beginning is denied.

    Args:
        statement: the statement.
        named: the options in it.
        offered: the options of the question by letter, if known.
        stands: whether an option at the beginning decides by itself, whatever is said of others.
    """
    groups = [[named[0]]]
    for reading in named[1:]:
        joined = _JOINS.fullmatch(statement, groups[-1][-1].end, reading.start)
        if joined and not (", " in joined.group() and _IS.match(statement, reading.end)):
            groups[-1].append(reading)
        else:
            groups.append([reading])
    if statement.rstrip().endswith("?"):
        return Reading(None)
    turn = max((match.end() for match in _TURNS.finditer(statement)), default=0)
    first = groups[0][0]
    opens = _OPENS.fullmatch(statement, 0, first.start)
    kept = [
        g for n, g in enumerate(groups) if g[0].start >= turn and not _denied(statement, groups, n, offered)
    ]
    if not kept:
        return None if opens else Reading(None)
    doubted = bool(_DOUBTS.search(statement) or not stands and _IF_NOT.search(statement))
    if stands and opens and kept[0] == [first] and _STANDS.match(statement, first.end):
        beside = len(kept) > 1 and _BESIDE.search(statement, first.end, kept[1][0].start)
        listed = len(kept) > 1 and (doubted or beside or not _WORDS.search(statement, first.end))
        return Reading(None) if listed or offered and first.answer not in offered else first
    if len(kept) > 1 and _AMONG.match(statement):
        kept = kept[1:]
    so = max((match.end() for match in _CONCLUDES.finditer(statement)), default=0)
    kept = [group for group in kept if group[0].start >= so] or kept
    letters = {reading.answer for group in kept for reading in group}
    clear = len(letters) == 1 and (not offered or letters <= {*offered}) and not doubted
    return kept[0][0] if clear else Reading(None)


def _denied(
    statement: str, groups: list[list[Reading]], n: int, offered: Mapping[str, re.Pattern[str]]
) -> bool:
    """Whether a clause denies the options that it names together, or the text of the last one."""
    begin = groups[n - 1][-1].end if n else 0
    end = groups[n + 1][0].start if n + 1 < len(groups) else len(statement)
    before = _CLAUSE.split(statement[begin : groups[n][0].start])[-1]
    after = statement[groups[n][-1].end : end]
    own, text = offered.get(groups[n][-1].answer or ""), folded(after).lstrip("(\"').:*- ")
    if own and (told := own.match(text)):
        after = text[told.end() :]
    if _REJECTED.match(after):
        return True
    after = _CLAUSE.split(after)[0]
    return bool(_DENIED.search(before) or _REFUTED.search(_NOT.sub("", after)))


@lru_cache(maxsize=1024)
def _offered(question: str) -> dict[str, re.Pattern[str]]:
    """What finds the text of each option, by letter."""
    return {letter: _words(text) for letter, text in options(question).items()}


def _words(text: str) -> re.Pattern[str]:
    whole = re.escape(folded(text).rstrip("."))
    return re.compile(rf"(?<![\w^_=+*/−-])(?<!\d[.,]){whole}(?![\w^=+*/!%]|[.,]\d)")  # no part of a formula
