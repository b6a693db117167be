"""Which of a sentence's numbers is its value.

In an equation the right-hand side counts. A sentence with two values has no answer: a list, a tuple, a range,
an inequality. Of several numbers one is the value where the others are denied (not 8), given before or after
it (After 3 days, ...; because 3 ...), or belong to another word (of 3 boxes, the 3 friends).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from soft_reasoning.answers.number import SCALES, Number, find, find_weak, value_of
from soft_reasoning.answers.statement import REFUSES, Place, Reading

_BULLET, _ITEM = re.compile(r"[ \t]*-[ \t]+(?=[\d$])"), re.compile(r"\s*\n[ \t]*-[ \t]+(?=[\d$])")
"""A dash at the beginning of a line, which is no minus."""
_ASKED = re.compile(rf"\bhow many ({'|'.join(SCALES)})s?\b", re.IGNORECASE)
_EQUALS = re.compile(r"(?<![<>!:])[=≈]|\\approx|[→⇒]")
_ASSIGNED = re.compile(r"(?<![\w\\])[A-Za-z]\s?=\s?[-$\d.]+")
_BESIDE = re.compile(r"\b(?:or|and)\b|^[^A-Za-z]*$|^\s?to\b")
"""Between two numbers that are both meant."""
_IS = re.compile(
    r"(?:\b(?:is|(?<!that )(?<!which )(?<!who )are|was|were|(?<!\bto )be|equals"
    r"|rounds(?: up| down)? to|(?:which|that|this) (?:makes|gives|leaves))(?: equal to)?"
    r"|\d (?:makes?|gives?|leaves?))\s(?:(?:about|approximately|exactly|only|just)\s)?[-\\$€£¥₹(]{0,3}$",
    re.IGNORECASE,
)
"""Before the value that a sentence gives."""
_COMPARED = re.compile(r"%\s(?:of|out of)\b|%?\s(?:\w+\sis\s)?(?:times|more|less|fewer)\b")
"""After a number that is compared with something."""
_ASIDE = re.compile(r"(?<=[\w%.$}] )\([^()\n]{1,200}\)")
_TELLS = re.compile(
    r"\b(?:so|thus|therefore|hence|total|altogether|in all|left|remain\w*|is|are|has|have|makes?|gives?"
    r"|leaves?|equals?)\b",
    re.IGNORECASE,
)
"""In a sentence whose words for numbers count: often they are no answer ("Two friends can share it.")."""
_DENIED = re.compile(
    r"(?:\b(?:not|neither|than|instead of)|n['’]t)\s(?:(?:the|just|only)\s)?"
    r"(?:[\d.$]+(?:,|,? n?or)\s)*[-\\$€£¥₹]{0,2}$",
    re.IGNORECASE,
)
"""Before a number that is denied, or compared with."""
_SO = re.compile(
    r"(?:^|[,;:.]\s|\s-\s)\W*(?:so|therefore|thus|hence|then|meaning|making|leaving|giving"
    r"|(?:so )?(?:which|that|this) means(?: that)?|but the (?:correct|right|actual|real))\b(?!\sthat)",
    re.IGNORECASE,
)
"""Before the conclusion of a sentence."""
_FRONT = re.compile(
    r"\W*(?:(?:so|thus|therefore|hence|then|and|but)\b,?\s)?(?:after|if|since|with|when|because|given|out of"
    r"|for|in(?! total| all)|as|while|by|before|of|from|although|at|once|\w+ing)\b"
    r"[^,\n]*(?:,(?=\d)[^,\n]*)*,\s",
    re.IGNORECASE,
)
"""What a sentence says before its main clause."""
_BACK = re.compile(
    r",?\s(?:after|before|because|since|when|if|although|though|assuming|not counting|including|excluding"
    r"|(?:in order )?to (?:have|reach|travel))\b"
)
"""What it says after it."""
_SUM_OF = re.compile(r"\b(?:total of|total|together)\s[-\\$€£¥₹]{0,2}$", re.IGNORECASE)
_IN_ALL = re.compile(
    r"\s(?:\w+\s)?(?:in total|in all|altogether|overall|remain|(?:is|are) left)\b", re.IGNORECASE
)
"""Before and after a total, or a rest."""
_BELONGS = re.compile(
    r"(?:\b(?:of|with|per|by|at|after|over|within|during|every|each|on|through|before|for|the|these|those|both"
    r"|all|his|her|their|its|remaining|other|first|last|next|original|year|month|week|day|step|page)\s(?:about\s)?|^\W*(?:\w+,?\s)?in\s)$",
    re.IGNORECASE,
)
"""Before a number that belongs to another word: of 3 boxes, in 2 hours, the 5 friends."""
_AMOUNT = re.compile(r"\b(?:(?:an?|the|total|sum)\s(?:\w+\s)?\w+\sof|(?:up|left)\swith)\s$", re.IGNORECASE)
"""Before a number that is an amount: a profit of 3, left with 3."""
_SPAN = re.compile(r"\s(?:second|minute|hour|day|week|month|year)s\b")
"""After "in" and a number: in 2 hours."""
_JOINED = re.compile(r"\b(?:and|or)\s[-\\$€£¥₹]{0,2}$")
_PRICE = re.compile(r"\\?[$€£¥₹]\d?$")
_EACH = re.compile(r"\s(?:each|per|apiece|an?)\b")


def read(statement: str, question: str = "", place: Place = "stated") -> Reading | None:
    """The number that a statement gives; None if it holds none, without an answer if it is ambiguous."""
    if REFUSES.search(statement):
        return Reading(None)
    if item := (_ITEM if place == "stated" else _BULLET).match(statement):
        statement = " " * item.end() + statement[item.end() :]
    plain = _ASIDE.sub(lambda aside: " " * len(aside.group()), statement)
    asked = _ASKED.search(question)
    unit = asked[1].lower() if asked else ""
    found = [*find(plain, unit)] or [*find(statement, unit)]
    numbers = _counted(plain, found, place)
    front = match.end() if (match := _FRONT.match(plain)) else 0  # "With n = 4, we get 12"
    begin = front if any(number.start >= front for number in numbers) else 0
    right = max((equals.end() for equals in _EQUALS.finditer(plain, begin)), default=0)
    result = [number for number in numbers if number.start >= right]
    totals = _totals(plain, _main(plain, result))
    if len(totals) == 1 and totals[0].answer is not None:
        numbers = totals
    elif right and result and len(_ASSIGNED.findall(plain)) < 2:  # "x = 3, y = 4" has two values
        gap = plain[result[0].end : result[1].start] if len(result) > 1 else ""
        numbers = result if _BESIDE.search(gap) else result[:1]  # "= 6 minutes for 20 pages" has one
        numbers = result[-1:] if _near(plain, _IS, result[-1]) else numbers  # "With n = 4 it is 12"
    if not numbers:
        return None
    *_, last = numbers  # "the cost of 490 meters is $2" has one value, although it holds two numbers
    told = [n for n in numbers if n.answer and _near(plain, _IS, n) and not _COMPARED.match(plain, n.end)]
    if len({number.value for number in numbers}) == 1:
        return Reading(*numbers[0][:3])
    heads = [last] if told == [last] else _heads(plain, numbers)
    if len({number.value for number in heads}) > 1 or _COMPARED.match(plain, heads[0].end):
        return Reading(None)
    return Reading(*heads[0][:3])


def _counted(plain: str, found: list[Number], place: Place) -> list[Number]:
    """The numbers that count: digits, unless only a number in words is a head; else words, else weak ones."""
    digits = [number for number in found if number.rank == 0]
    words = [number for number in found if number.rank == 1]
    alone = place in ("stated", "only")
    if words and (alone or place == "last" and _TELLS.search(plain)):
        heads = _heads(plain, found) if digits else words
        return digits if any(number.rank == 0 for number in heads) or _EQUALS.search(plain) else heads
    if digits or place == "earlier":
        return digits
    return [number for number in find_weak(plain) if alone or plain[number.start].isdigit()]


def _main(plain: str, numbers: list[Number]) -> list[Number]:
    """Those of several numbers that are neither denied nor given before or after, as far as any is left."""
    front = match.end() if (match := _FRONT.match(plain)) else 0
    so = max((match.end() for match in _SO.finditer(plain)), default=0)
    back = next((match.start() for match in _BACK.finditer(plain, max(so, front))), len(plain))
    kinds: tuple[Callable[[Number], bool], ...] = (
        lambda number: not _near(plain, _DENIED, number),
        lambda number: number.start >= so,
        lambda number: number.start >= front,
        lambda number: number.start < back,
    )
    for kind in kinds:
        numbers = [number for number in numbers if kind(number)] or numbers
    return numbers


def _heads(plain: str, numbers: list[Number]) -> list[Number]:
    """Those of the main numbers that belong to no other word, as far as any is left."""
    main = _main(plain, numbers)
    joined = [_near(plain, _JOINED, number) for number in main[1:]]  # "with 3 boys and 4 girls": 3 counts
    pairs = zip(main, [*joined, False], strict=True)
    return [number for number, beside in pairs if beside or not _belongs(plain, number)] or main


def _totals(plain: str, numbers: list[Number]) -> list[Number]:
    """Those that are called a total or a rest: not "3 pens and 2 in all" nor "5 boxes of 3 in all"."""
    called = [n for n in numbers if _near(plain, _SUM_OF, n) or _IN_ALL.match(plain, n.end)]
    return [n for n in called if not _near(plain, _JOINED, n) and not _belongs(plain, n)]


def _near(plain: str, pattern: re.Pattern[str], number: Number) -> bool:
    """Whether ``pattern`` stands before a number."""
    return bool(pattern.search(plain, max(0, number.start - 40), number.start))


def _belongs(plain: str, number: Number) -> bool:
    """Whether a number belongs to another word of its sentence."""
    begin, end = max(0, number.start - 40), number.start
    paid = _PRICE.search(plain, begin, end + 1)
    if paid and not _EACH.match(plain, number.end):
        return False
    end = paid.start() if paid else end
    within = plain[begin:end].endswith(" in ") and _SPAN.match(plain, number.end)
    return bool(within or _BELONGS.search(plain, begin, end)) and not _AMOUNT.search(plain, begin, end)


def confirmed(statement: str, answer: str | None) -> Reading | None:
    """The first number of a statement if it is ``answer``: "3 * 4 = 12. So there are 12 eggs in 3 boxes."."""
    first, *others = [*find(statement)] or [Number(None, 0, 0)]
    beside = others and _BESIDE.search(statement[first.end : others[0].start])
    same = answer is not None and value_of(answer) == first.value
    return Reading(*first[:3]) if same and not beside else None
