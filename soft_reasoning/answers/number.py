"""Reading numbers.

A statement that begins with a number gives it, or the result of its equation ("10 / 4 = 2.5"). Any other
gives the number of its first sentence with numbers or, if it computes or concludes something, of the last
sentence of its paragraph. A text without a statement gives that of its last sentence with numbers:

1. the number after the last equals sign, else
2. the only number, else
3. the only number outside of circumstances ("in 5 days", "the 12 eggs"), else
4. the last number, if a verb precedes it ("6 feet is 72 inches"). Else the sentence has no answer.

Only decisive numbers count (``reader.decisive``). Numbers of an aside in brackets and denied numbers
("not 5") do not. A question, "8 or 9" and a text that breaks off have no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from soft_reasoning.answers.numerals import find, find_words, whole_value
from soft_reasoning.answers.reader import REFUSAL, WINDOW, Reader, Reading, blanked, decisive, sentences

_ITEM = re.compile(r"(?<=\n)[ \t]*(?:[-*•–]|\(?[a-h\d]{1,2}[.)])[ \t]+")
_LABEL = re.compile(
    r"\W{0,3}(?:(?:Option|Step|Part|Case|Question|Problem|Exercise|Method|Q)\s?\d{1,2}\s?[:.)]+|#\d{1,2}:"
    r"|\(?[a-h\d]\)(?=\s?\S*\d)|1\.\s(?=\d))"
)
_REMARK = re.compile(
    r"(?:(?<=\n)|(?<=[.!?)*] )|(?<=[.!?] \())\W{0,4}"
    r"(?:(?:To |Let['’]s |Let me |(?:We|You) can |Double-|Cross-|Sanity )?(?:[Cc]heck|[Vv]erif|[Cc]onfirm)\w*"
    r"|If (?:we|you)|Substituting|Plugging|Proof|Indeed|Let me know|I hope|Hope|Feel free|Would you|Do you)\b"
    r"|(?<=\n)\W{0,4}(?:Note|Tip|P\.?S|References|Sources?|Confidence|Explanation|Common|Key|Difficulty)\b"
    r"|(?<=\n)(?:\[\^?\w{1,3}\]|[¹²³]|(?<=\n\n)[(\[])"
)
"""The beginning of a remark on an answer already given."""
_CUT = re.compile(r"(?:[+×÷=/]|\s[-*]|\b(?:the|of|and|is|to|a|by|per|with|for|are|so|then|which))\s*$")
_ASKS = re.compile(r"\b(?:[Hh]ow|[Ww]hat|[Ww]hich)\b[^!?\n]*\?$")

_APPROACH = re.compile(
    r"(?:\W|\b(?:it|is|that|['’]?s|about|approximately|around|roughly|exactly|only|just|nearly|almost|probably"
    r"|definitely|at (?:least|most)|a|total|of|USD|EUR|[a-z])\b)*",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"(?<=[\w%.])\s{1,4}\([^()\n]{1,200}\)?")
_DENIED = re.compile(r"(?:(?<![\w-])not|n['’]t(?: \w+)?|rather than|instead of)\s[$€£]?$", re.IGNORECASE)
_SCENE = re.compile(
    r"\b(?:in|over|for|from|at|on|by|within|during|per|every|after|before|between|until|than|to|of|each|with|all"
    r"|both)\s"
    r"(?:(?:the|all|these|those|both|his|her|their|its|my|our|\w+['’]s|about)\s)?"
    r"(?:(?:first|last|next|other|same)\s)?[$€£]?$"
    r"|(?:^|\W)(?:the|these|those|his|her|their|[Dd]ay|[Ww]eek|[Ss]tep|[Yy]ear|[Pp]age)\s$",
    re.IGNORECASE,
)
_VERB = re.compile(
    r"(?<!which )\b(?:is|are|was|were|equals|has|have|had|owns?|holds?|gets?|got|costs?|needs?|pays?|paid"
    r"|keeps?|kept|makes?|made|earns?|earned|spends?|spent|saved?|takes?|took|sold|eats?|ate)\s"
    r"(?:about |now |only )?[$€£]?$"
)
_DERIVES = re.compile(
    r"[=≈]|\b(?:[Ss]o|[Tt]hus|[Tt]herefore|[Hh]ence|[Tt]otal|[Aa]ltogether|[Tt]ogether|Now"
    r"|This (?:gives|makes|leaves))\b"
)
_RESTATED = re.compile(
    r"(?:i\.e\.,?|that is,?|in other words,?|rounds? (?:up |down )?to|\bso)\s(?=\W{0,3}\d)"
)
_OR = re.compile(
    r",?\s(?:or|oder|ou|и)\s\W?(?:maybe\s)?(?:[a-z]\s?=\s?)?[$€£]?|,?\s(?:to|and|und)\s[$€£]?|\s?[-–]\s?"
)
_VARIABLE = re.compile(r"(?<![A-Za-z\\])[a-z]\s?[-+*/]\s?$")
_OPERATOR = re.compile(r"\s?(?:[-+*×·÷/^]|\\(?:times|cdot|div))\s?\$?\d")
_DIGIT = re.compile(r"\d")
_AMBIGUOUS = Reading(None)


class NumberReader(Reader):
    """Reads numbers."""

    def read(self, statement: str) -> Reading | None:
        for begin, sentence in _sentences(statement):
            number = _opening(sentence)
            if number is None and REFUSAL.search(sentence):
                return Reading(None)
            number = number or _stated(sentence)
            if number is None:
                continue
            stop = statement.find("\n\n", begin + len(sentence))
            paragraph = statement[: stop if stop >= 0 else None]
            if _opening(sentence) is None and _DERIVES.search(paragraph):
                return _last(paragraph)
            return number.shifted(begin)
        return None

    def close(self, text: str) -> Reading | None:
        begin = max(0, len(text) - WINDOW)
        text = "\n" + text[begin:]
        digit = _DIGIT.search(text)
        if digit and (remark := _REMARK.search(text, digit.end())):
            text = text[: remark.start()]
        text = text.rstrip()
        if _CUT.search(text[-40:]) or _ASKS.search(text[-200:]) or REFUSAL.search(text.rpartition("\n")[2]):
            return Reading(None)
        number = _last(text)
        return number and number.shifted(begin - 1)

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        x, y = whole_value(a), whole_value(b)
        if x is None or y is None:
            return a.strip() == b.strip()
        return close_enough(x, y, absolute, relative)


def close_enough(x: Fraction, y: Fraction, absolute: float, relative: float) -> bool:
    """Whether two values differ by at most ``absolute``, or ``relative`` times the larger magnitude."""
    if x == y:
        return True
    return abs(x - y) <= max(Fraction(str(absolute)), Fraction(str(relative)) * max(abs(x), abs(y)))


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """Sentences without list marks, labels and asides."""
    for begin, sentence in sentences(blanked(_ITEM, text)):
        label = _LABEL.match(sentence)
        start = label.end() if label else 0
        plain = blanked(_ASIDE, sentence)
        yield begin + start, (plain if _DIGIT.search(plain, start) else sentence)[start:]


def _last(text: str) -> Reading | None:
    """The number of the last sentence with a number that is not a question."""
    for begin, sentence in reversed([*_sentences(text)]):
        if REFUSAL.search(sentence):
            return Reading(None)
        number = None if sentence.rstrip().endswith("?") else _stated(sentence)
        if number:
            return number.shifted(begin)
    return None


def _numbers(sentence: str) -> list[Reading]:
    """The numbers that are not denied; numbers in words if there are no digits."""
    numbers = list(find(sentence)) or list(find_words(sentence))
    return [n for n in numbers if not _DENIED.search(sentence[max(0, n.start - 30) : n.start])]


def _opening(sentence: str) -> Reading | None:
    """The number that a sentence begins with, or the result of its equation."""
    numbers = _numbers(sentence)
    if not numbers or not _APPROACH.fullmatch(sentence, 0, numbers[0].start):
        return None
    rest = sentence[numbers[0].end :]
    if _OPERATOR.match(rest):
        return None if "=" in rest else _AMBIGUOUS
    if _RESTATED.search(rest) or "=" not in rest and any(find(rest.partition(", ")[0])):
        return None
    numbers = decisive(sentence, numbers)
    return _result(sentence, numbers) or _single(sentence, numbers[0], numbers)


def _stated(sentence: str) -> Reading | None:
    """The number that a sentence states."""
    numbers = decisive(sentence, _numbers(sentence))
    if not numbers:
        return None
    if result := _result(sentence, numbers):
        return result
    main = [n for n in numbers if not _SCENE.search(sentence[max(0, n.start - 30) : n.start])] or numbers
    if len({n.answer for n in main}) > 1 and not _VERB.search(sentence[: main[-1].start]):
        return _AMBIGUOUS
    return _single(sentence, main[-1], numbers)


def _result(sentence: str, numbers: list[Reading]) -> Reading | None:
    """The number after the last equals sign, or before it where an expression follows it ("24 = 3 * 8")."""
    equals = max(sentence.rfind(sign, 0, numbers[-1].start) for sign in "=≈")
    if equals < 0:
        return None
    after = next(n for n in numbers if n.start > equals)
    before = [n for n in numbers if n.end <= equals]
    if _OPERATOR.match(sentence, after.end):
        return before[-1] if before else None
    return _single(sentence, after, numbers)


def _single(sentence: str, number: Reading, numbers: list[Reading]) -> Reading:
    """``number``, or no answer if the sentence offers an alternative beside it or computes with it."""
    i = numbers.index(number)
    pairs = [*zip(numbers[: i + 1], numbers[1 : i + 1], strict=False)][-1:] + [
        *zip([number], numbers[i + 1 : i + 2], strict=False)
    ]
    for left, right in pairs:
        if _OR.fullmatch(sentence, left.end, right.start) and left.answer != right.answer:
            return _AMBIGUOUS
    variable = _VARIABLE.search(sentence[max(0, number.start - 6) : number.start])
    if variable or _OPERATOR.match(sentence, number.end) and "=" not in sentence[number.end :][:40]:
        return _AMBIGUOUS
    return number
