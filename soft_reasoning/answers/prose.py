"""Choosing the number that a sentence states.

1. A label in front ("Option 3:", "1)") is not a number of the sentence.
2. A denied number ("not 9 but 8") is ignored, and so is an abandoned one ("I first thought 80, but").
3. After a conclusion ("so", "therefore", "which makes") only the conclusion counts, unless the sentence
   begins with its number.
4. The result of a sentence's last equation ("36 - 27 = 9") counts, in any clause, and the number that ends
   a sentence after "is" and the like ("The sum of 3 and 4 is 7").
5. Background numbers come last: those of a leading clause ("In 5 years she will be 27"), and those after
   a preposition or a determiner ("The 3 dogs need 12 bowls").
6. In a chain of equalities, the last plain number up to the end of the clause counts
   ("10 / 4 = 5/2 = 2.5").
7. A restatement or a total counts ("3 weeks, i.e. 21 days", "15 and 5, so 20 in all").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from soft_reasoning.answers.numerals import CLOCK, Number, find
from soft_reasoning.answers.reader import any_of, last_match

Span = tuple[int, int]

_LABELS = any_of("Option, Step, Part, Question, Problem, Case, Choice, Example, Exercise, Item, Answer, Q")
_LABEL = re.compile(
    rf"[\s*_\"'(\[]*(?:(?:Sub-?question|{_LABELS})\s?\(?\d{{1,2}}\)?\s?[:.)-]+\s*(?=.*\d)"
    r"|(?:\(\d{1,2}\)|\d{1,2}\)|1\.)\s+(?=[$€£¥]?\d)"
    r"|(?:\(?[a-h]\)|#\d{1,2}\s?[:.)])\s*(?=.*\d))"
)
_WORD = re.compile(r"\w")
_ITEM = re.compile(r"[ \t]*(?:[-*•–]|\(?(\d{1,2})[.)])[ \t]+")
_LIST_FOLLOWS = re.compile(r"\n[ \t]*\(?2[.)]\s")
_NOT_ITEM = r"(?<!^\d)(?<!\n\d)(?<!\n\d\d)"
_SENTENCE_END = re.compile(
    rf"(?:{_NOT_ITEM}[.!?][\"')\]*]{{0,3}}[ \t]+(?=[A-Z\"'(*\[$-]|\d+\s?[-+*x×/÷·=])|\n)\s*"
)
_DENIED = re.compile(
    rf"(?:(?<![\w-])not|n['’]t|\b{any_of('rather than, instead of')})\s"
    r"(?:(?!more|less|until|for)[^\W\d]+\s)?[$€£]?$",
    re.I,
)
_RESULT_WORDS = any_of("therefore, thus, hence, then")
_LEAVES = any_of("makes, means, gives, leaves, equals, brings, totals")
_LEAVING = any_of("meaning, making, leaving, giving, bringing")
_FORMER = any_of("first, initially, originally, at first, might, may, would")
_GUESSED = any_of(
    "thought, think, guessed, guess, assumed, assume, expect, say, said, got, computed, calculated"
)
_ABANDONED = re.compile(
    rf"\b(?:{_FORMER}\s(?:have\s)?{_GUESSED}|(?:[Ff]irst|[Ii]nitial)\s(?:guess|answer|thought)\b)"
    rf"[^;!?]{{1,80}}?\b{any_of('but, however, though, although')}\b"
)
_RESTATEMENT = re.compile(
    r"(?<!\()\b(?:i\.e\.,?|that\sis,?|in\sother\swords,?|rounds?\s(?:(?:up|down)\s)?to)\s(?=\W{0,3}\d)"
    r"|,\s(?:so|or)\s(?=\W{0,3}\d[\d,.]*\s(?:\w+\s)?(?:in\s(?:all|total)|altogether)\b)",
    re.I,
)
_CONCLUSION = re.compile(
    rf"(?:[,;:.]|^|\s)\s?(?:(?:and\s)?(?:so(?!\s(?:that|far|many|much)\b)|{_RESULT_WORDS})\b"
    rf"|which\s(?:then\s)?{_LEAVES}\b|(?<=,\s){_LEAVING}\b|\b(?:still|now)\s(?:has|have)\b"
    rf"|\band\sk(?:ept|eeps)\b|\b(?:left"
    rf"|ends?\sup)\swith\b|,\sand\s(?:then|now|finally)\b"
    r"|which\sis(?=\s[$€£]?\d[\d,.]*(?:\s\w+)?[.!]?$)|(?<=;\s)(?:it|that)(?:\sis|['’]s)\b"
    r"|for\sa\s(?:grand\s)?total\sof\b|(?<!all\s)of\swhich\b|i\.e\.|that\sis,|(?:should|must|has\sto)\sbe\b|I\smeant\b)"
    r"|:(?=\s[$€£]?\d[\d,.]*[^\d]*$)",
    re.I,
)
_OPENERS = any_of(
    "By, by, After, For, With, From, At, On, Of, Out of, Over, Within, During, Given, Since, If, When, "
    "Because, Contrary to, Unlike, Despite, Compared with, Compared to, "
    "As, Before, To, Between, Per, Every, Instead of, Besides, Without, While, Although, Rather than, "
    "rather than"
)
_OPENER = re.compile(
    rf"\W*(?:{_OPENERS}|[A-Z][a-z]{{2,12}}ing(?=\s[^,]{{0,60}}\d[^,]{{0,60}},)|[Ii]n(?!\s(?:total|all"
    rf"|conclusion|summary|the\send|short)\b))\b"
)
_MAIN_CLAUSE = re.compile(r",\s(?!and\b|or\b)")
_PREPOSITIONS = any_of(
    "in, for, from, at, on, by, within, during, per, every, after, before, between, until, than, to, "
    "out of, each of, "
    "all of, one of, both of, some of, most of"
)
_TO_HER = "".join(
    rf"(?<!{verb}\s)" for verb in ("takes", "took", "costs", "cost", "gives", "gave", "leaves", "left")
)
_OWNERS = f"his, {_TO_HER}her, their, its, my, our"
_DETERMINERS = any_of(f"the, all, these, those, both, {_OWNERS}")
_OWNER_NAMED = r"(?!(?:it|that|there|he|she|what|let)['’])\w+['’]s"
_COLLECTIVES = any_of("family, group, team, class, pack, box, set")
_SCENE = re.compile(
    rf"(?:\b(?:(?-i:{_LABELS})|{_PREPOSITIONS}|(?<!left\s)with|{_COLLECTIVES}\sof|of(?=\s{_DETERMINERS}\s))"
    rf"(?:\s(?:{_DETERMINERS}|this|\w+['’]s|\w+ing))?"
    rf"|(?:^|\W)(?:{_DETERMINERS}|{_OWNER_NAMED}))"
    rf"(?:\s{any_of('first, last, next, other, remaining, same, entire, whole, initial, original')})?\s$",
    re.I,
)
_IT_IS = rf"(?:{any_of('it, that, this, he, she, they, we, you, I, answer, total, result')}|[a-z])"
_ABOUT = any_of(
    "about, approximately, around, roughly, exactly, only, just, nearly, almost, at least, at most, "
    "a total of, no, not, "
    "n['’]t, now, both, either, another, by"
)
_APPROACH = re.compile(
    rf"[\W_]*(?:{_IT_IS}(?:\s(?:is|are|=|equals)|['’]s|\s?=|:)\s?)?(?:{_ABOUT}[\s,:]+)*"
    r"(?:US|USD|EUR|GBP|Rs\.?|[a-z]\s?=)?[\W_]*",
    re.I,
)
"""Text allowed before a number at the beginning of a sentence: "It is about $"."""
_LONGEST_APPROACH = 60
_NEAR = 12
_CLAUSE_END = re.compile(
    r"[.!?](?=\s|[A-Z]|$)|[;\n]|,(?=\s)|\((?=[a-z]|≈)"
    rf"|\b{any_of('because, since, so, where, which, but, if, when, after, as, therefore, thus')}\b"
)
_CONCLUDES = re.compile(
    r"[=≈]|\b(?:[Ss]o|[Tt]herefore|[Tt]hus|[Hh]ence|[Tt]otal|[Tt]ogether|[Aa]ltogether|[Nn]ow|[Ff]inally"
    r"|[Tt]his\s(?:gives|means|leaves|makes))\b"
)
_REASON = re.compile(r",?\s(?:since|because)\s")
_OR = re.compile(r",?\s(?:or|oder|ou|o|или)\s(?:[a-z]\s?=\s?)?(?:(?:maybe|perhaps|possibly)\s)?[$€£]?")
_BETWEEN = re.compile(r"\b(?:between|range\s(?:of|from))\s(?:[^\s.;]+\s(?:and|to)\s)?[$€£]?$", re.IGNORECASE)
_VARIABLE = re.compile(r"(?<![A-Za-z\\])[a-z]\s?[-+*/]\s?$")
_EQUALS = re.compile(r"[=≈≡]+>?")
_OPERATOR = re.compile(r"(?<=[\d\w)%\s])\s?[-+*×·⋅÷/x]\s?\W?\d")
_CALL = re.compile(r"[)!|\]]\s?$")
"""The end of "C(5, 2)", "7!" or "|-13|"."""
_SUBJECT = re.compile(
    r"\s?(?:[^\W\d]+\s){1,3}?(?:(?:cost|weigh|make|need|take|equal|give|hold|get)s?|build|is"
    r"|are)\s(?:\w+\s)?$"
    r"|\s?(?:[^\W\d]+\s){1,3}?(?:is|are|was|were)\s[^\d;=]{1,60}?,?\s(?:so|thus|therefore"
    r"|hence)\s[^\d;=]{0,30}$"
)
_IS_LAST = re.compile(
    rf"(?<!which\s)\b{any_of('is, are, was, equals, makes, gives, leaves, yields, to get, or')}\s"
    r"(?:(?:us|her|him|them|you)\s)?[$€£]?$"
)
_BELONGS = re.compile(
    r"\bof\s(?:about\s)?[$€£]?$|\^$|\bto\s\w+\s[$€£]?$"
    r"|(?:\b(?:since|because|which|rather\sthan|instead\sof|not|when|if)|n['’]t|,\s(?:as|all))\b[^.;]*$"
)
_ENDS = re.compile(
    r"(?!\s(?:\w+\s)?(?:more|less|fewer|times|older|younger|each|per)\b)(?:\s?[^\W\d]+|%){0,4}[\s.!*_)$\\]*"
)
"""What stands around the result of "The sum of 3 and 4 is 7 apples.\""""


def sentences(text: str, *, at_line_start: bool = True) -> Iterator[Span]:
    """Yield the sentences of a cleaned ``text`` that hold a word, without list marks.

    ``at_line_start`` says whether ``text`` begins a line: there "- 5" is an item, elsewhere a number.
    """
    start, items = 0, 0
    for end in [*_SENTENCE_END.finditer(text), None]:
        stop = len(text) if end is None else end.start() + (end.group()[0] in ".!?")
        begin = start
        if (begin == 0 or text[begin - 1] == "\n") and (item := _ITEM.match(text, begin, stop)):
            count = item[1]
            if count is None:
                begin = item.end() if begin or at_line_start else begin
            elif int(count) == items + 1 and (items or begins_list(text, begin)):
                items, begin = items + 1, item.end()
        if _WORD.search(text, begin, stop):
            yield begin, stop
        start = len(text) if end is None else end.end()


def begins_list(text: str, begin: int = 0) -> bool:
    """Whether ``begin`` has "1." and a later line "2."."""
    item = _ITEM.match(text, begin)
    return item is not None and item[1] == "1" and _LIST_FOLLOWS.search(text, begin) is not None


def unlabelled(sentence: str) -> int:
    """Return where a sentence begins after its label."""
    label = _LABEL.match(sentence)
    return label.end() if label else 0


def opens(sentence: str, numbers: Sequence[Number]) -> bool:
    """Whether a sentence begins with the first of its ``numbers``, or nearly so."""
    return bool(numbers) and _approached(sentence, 0, numbers[0]) and not _in_subject(sentence, numbers)


def _approached(sentence: str, begin: int, number: Number) -> bool:
    near = number.start - begin <= _LONGEST_APPROACH
    return near and _APPROACH.fullmatch(sentence, begin, number.start) is not None


_MONTH = (
    "(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    "|Oct(?:ober)?"
    "|Nov(?:ember)?|Dec(?:ember)?)"
)
_DATE = re.compile(
    rf"\b(?:{_MONTH}\s\d{{1,2}}(?:st|nd|rd|th)?,\s\d{{4}}|{_MONTH}\s\d{{1,2}}(?:st|nd|rd|th)\b(?:\s\d{{4}})?"
    rf"|(?:\b(?:[Oo]n|[Bb]y|[Uu]ntil|[Ss]ince|[Ff]rom|to)"
    rf"|[A-Za-z]{{2,6}}day,)\s{_MONTH}\s\d{{1,2}}(?:,\s\d{{4}}|(?=[^\w\s]|$|\s(?:to|and|until|at|after)\b))"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?\s(?:of\s)?{_MONTH}\b(?:,?\s\d{{4}})?|{_MONTH}\s(?:19|20)\d\d)\b"
    rf"|\b(?:\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}}/\d{{1,2}}/(?:19|20)\d\d)\b|\b\d{{1,2}}{CLOCK}\d\d"
    rf"|\b\d{{1,3}}\s?:\s?\d{{1,3}}\b"
)


def affirmed(sentence: str, numbers: Sequence[Number]) -> list[Number]:
    """The numbers that a sentence does not deny or abandon; those of dates only where there is no other."""
    abandoned = [found.span() for found in _ABANDONED.finditer(sentence)]
    dates = [found.span() for found in _DATE.finditer(sentence)]
    rest = [
        n
        for n in numbers
        if not _DENIED.search(sentence, max(0, n.start - 30), n.start) and not _inside(n, abandoned)
    ]
    return [n for n in rest if not _inside(n, dates)] or rest


def _inside(number: Number, spans: Sequence[Span]) -> bool:
    return any(start <= number.start < end for start, end in spans)


def meant(sentence: str, begin: int, numbers: Sequence[Number]) -> Number | None:
    """Return the number that ``sentence[begin:]`` states, one of ``numbers``, or None."""
    numbers = affirmed(sentence, numbers)
    if not numbers:
        return None
    for restatement in _RESTATEMENT.finditer(sentence, begin):
        if behind := [n for n in numbers if n.start >= restatement.end()]:
            begin, numbers = restatement.end(), behind
    if not _approached(sentence, begin, numbers[0]) or _in_subject(sentence, numbers):
        if reason := _REASON.search(sentence, numbers[0].end):
            stated = [n for n in numbers if n.end <= reason.start()]
            numbers = stated if any(not _is_scene(sentence, n) for n in stated) else numbers
        for conclusion in _CONCLUSION.finditer(sentence, begin):
            behind = [n for n in numbers if n.start >= conclusion.end()]
            if behind:
                begin, numbers = conclusion.end(), behind
        if result := _result(sentence, begin, numbers):
            return result
        if len(numbers) > 1 and ";" not in sentence and _IS_LAST.search(sentence, begin, numbers[-1].start):
            if _ENDS.fullmatch(sentence, numbers[-1].end):
                return _committed(sentence, numbers[-1], numbers)
        numbers = _foreground(sentence, begin, numbers)
    return _committed(sentence, _end_of_chain(sentence, numbers), numbers)


def _committed(sentence: str, number: Number, numbers: Sequence[Number]) -> Number:
    """``number``, without a value where the sentence may mean another one.

    It offers several ("8 or 9"), or computes with a variable ("x + 5").
    """
    for left, right in pairwise(numbers):
        if number in (left, right) and _OR.fullmatch(sentence, left.end, right.start):
            same = (
                left.value is None
                or right.value is None
                or right.value in (left.value, left.value / 100, left.value * 100)
            )
            number = number if same else replace(number, value=None)
    within = _BETWEEN.search(sentence, max(0, number.start - 40), number.start)
    if within or _VARIABLE.search(sentence, max(0, number.digits - 6), number.digits):
        return replace(number, value=None)
    return number


def overruled(value: Fraction | None, rest: str) -> bool:
    """Whether the last number in the ``rest`` of a sentence may be meant rather than ``value``.

    Not if it is the same, or belongs to what goes before: "4 books of 30 pages", "3 h (180 minutes)".
    """
    numbers = list(find(rest))
    last = numbers[-1] if numbers else None
    if last is None or value is None or last.value is None or abs(last.value) == abs(value):
        return False
    if rest.startswith("%", last.end) and last.value == 100 * value:
        return False
    before = rest[: last.start]
    return not (before.rfind("(") > before.rfind(")") or _is_scene(rest, last) or _BELONGS.search(before))


def last_conclusion(sentence: str) -> int:
    """Return where the last conclusion of a sentence begins ("so he has a dozen"), or its end."""
    last = last_match(_CONCLUSION, sentence)
    return last.end() if last else len(sentence)


def _result(sentence: str, begin: int, numbers: Sequence[Number]) -> Number | None:
    """The plain number after the last equals sign that follows a computation."""
    for equals in reversed([*_EQUALS.finditer(sentence, begin)]):
        behind = next((n for n in numbers if n.start >= equals.start()), None)
        if behind is not None and behind.start - equals.end() <= _NEAR:
            plain = not _OPERATOR.match(sentence, behind.end)
            computed = _OPERATOR.search(sentence, begin, equals.start()) or _CALL.search(
                sentence, begin, equals.start()
            )
            aside = sentence.rfind("(", begin, equals.start())
            if aside > sentence.rfind(")", begin, equals.start()):  # "9 birds (5 - 2 = 3)": 9 or 3?
                before = [n for n in numbers if n.end <= aside and n.value != behind.value]
                behind = replace(behind, value=None) if before else behind
            return behind if plain and computed else None
    return None


def _foreground(sentence: str, begin: int, numbers: Sequence[Number]) -> Sequence[Number]:
    """The numbers from the first one that is not background."""
    rest = list(numbers)
    if opener := _OPENER.match(sentence, begin):
        comma = _MAIN_CLAUSE.search(sentence, opener.end())
        rest = [n for n in rest if comma and n.start > comma.start()] or rest[1:] or rest
    rest = rest[_in_subject(sentence, rest) :]
    front = [i for i, n in enumerate(rest) if not _is_scene(sentence, n)]
    return rest[front[0] :] if front else rest


def _is_scene(sentence: str, number: Number) -> bool:
    return _SCENE.search(sentence, max(0, number.start - 40), number.start) is not None


def _in_subject(sentence: str, numbers: Sequence[Number]) -> int:
    """How many of the first ``numbers`` belong to the subject: "6 tickets cost $60", "25% of 80 is 20"."""
    if len(numbers) < 2:
        return 0
    return int(bool(_SUBJECT.fullmatch(sentence, numbers[0].end, numbers[1].start)))


def _end_of_chain(sentence: str, numbers: Sequence[Number]) -> Number:
    """The last plain number of the chain of equalities that starts with the first of ``numbers``."""
    start, end = numbers[0].start, _clause_end(sentence, numbers)
    chain: list[tuple[Number, bool]] = []
    inside = iter([n for n in numbers if n.end <= end])
    number = next(inside, None)
    for equals in [*_EQUALS.finditer(sentence, start, end), None]:
        stop = equals.start() if equals else end
        first = None
        while number is not None and number.end <= stop:
            if first is None and number.start >= start:
                first = number
            number = next(inside, None)
        if first is not None:
            unread = sentence.startswith("\\frac", first.start)  # its operators are inside it
            rest = first.start if unread else first.end
            chain.append((first, bool(_OPERATOR.search(sentence, rest, stop))))
        start = equals.end() if equals else end
    plain = [n for n, expression in chain if not expression]
    return (plain or [n for n, _ in chain] or numbers)[-1 if plain else 0]


def _clause_end(sentence: str, numbers: Sequence[Number]) -> int:
    rest = list(reversed(numbers))
    for boundary in _CLAUSE_END.finditer(sentence, numbers[0].end):
        while rest and rest[-1].end <= boundary.start():
            rest.pop()
        if boundary.group() == "(" and sentence[boundary.end()] == "≈" and numbers[0].fraction:
            continue
        if not rest or not rest[-1].start < boundary.start() < rest[-1].end:
            return boundary.start()
    return len(sentence)


def computes_on(sentence: str, value: str) -> bool:
    """Whether a sentence continues to compute with ``value``, left of an equals sign."""
    equals = _EQUALS.search(sentence)
    if equals is None:
        return False
    computed = sentence[: equals.start()].replace(",", "")
    return re.search(rf"(?<![\d.]){re.escape(value)}(?!\.?\d)", computed) is not None


def concludes(sentence: str) -> bool:
    """Whether a sentence computes something or says that it concludes."""
    return _CONCLUDES.search(sentence) is not None


def is_expression(sentence: str, numbers: Sequence[Number]) -> bool:
    """Whether a sentence begins with an expression rather than a number."""
    return (
        len(numbers) > 1
        and bool(_EQUALS.search(sentence))
        and bool(_OPERATOR.search(sentence, numbers[0].digits))
    )
