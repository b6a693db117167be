"""Choices: the letter of an option, or its text.

After a mark a sentence begins with a letter that is offered, or with the text of an option. Without a mark it
names a letter in a form that means an option ("(B)", "option B", "only B", "so B is the answer"), it holds
nothing else, or it ends in an option's text. Two options are none.
"""

from __future__ import annotations

import re
from functools import lru_cache

from soft_reasoning.answers.marks import Reading, holds_word

_OFFERED = re.compile(r"(?:^|(?<=\s))\(?([A-Z])[).:]\s+(?=\S)")
_LEAD = r"\W*(?i:(?:so|thus|therefore|hence|most|likely|probably|option|choice|letter)\W+)*"
_STANDS = re.compile(
    r"[\s*\"'”’})\]]*"
    r"(?:$|[).:,;(–—-](?![\w=.])|(?<=\s)(?:is\s(?:the|correct|right)|because|since|as(?!\swell))\b)"
)
"""After an option that stands alone: not "B or C", "A bird", "B = 3"."""
_OPENS = re.compile(
    rf"{_LEAD}(?:\\text\w*\{{)?\W*(?P<letter>[A-Z]|[a-z](?=\)|\W*$))(?!\w|['’]\w){_STANDS.pattern}"
)
_CORRECT = re.compile(
    r"[)*\"'”’]*\s+(?:is|must be)\s(?:the\s(?:\w+\s){0,2}?)?(?:correct|right|true|best|answer)\b"
)
_NAMED = re.compile(
    rf"""(?<![\w.])\(?(?P<bracket>[A-Z])\)|(?<![\w'’])(?P<correct>[A-Z])(?={_CORRECT.pattern})
    |\b(?i:option|choice|answer|letter|only|pick|choose|select)\s[(*"']*(?P<word>[A-Z])(?![\w'’])""",
    re.VERBOSE,
)
"""A letter in a form that means an option."""
_LETTER = re.compile(
    r"(?<![\w'’])(?:[B-HJ-Z]|[AI](?!\s(?!(?:or|and|nor)\b)[a-z])|(?<=or )[AI]|(?<=and )[AI])(?![\w'’])"
)
"""Any letter that can be one; A and I are words as well."""
_DENIES = re.compile(
    r"\b(?:not|cannot|never|neither|nor|maybe|perhaps|possibl[ey]|might|may|could|depends|unclear|unknown"
    r"|unable|whether|if|unless|hardly|rarely|unlikely|doubt\w*|impossible|wrong|incorrect|eliminat\w+|also)\b"
    r"|n['’]t\b|\?\s*$",
    re.IGNORECASE,
)
"""What denies or doubts an option."""
_REASON = re.compile(
    r"\b(?:because|since|not|rather|while|whereas|but|unlike|neither)\b|[.!]\s", re.IGNORECASE
)
"""Before what is said of other options."""


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


def read(sentence: str, question: str, marked: bool) -> Reading | None:
    """The option that a sentence gives; None if it gives none, without an answer if it is ambiguous.

    >>> q = "Which? (A) red (B) blue"
    >>> [read(text, q, True).answer for text in ("B, because A is red", "blue", "A or B", "B) red")]
    ['B', 'B', None, None]
    >>> [read(text, q, False).answer for text in ("I pick B rather than A.", "Red, so A is the answer.")]
    ['B', 'A']
    """
    texts = _texts(sentence, question)
    plain = sentence  # without the texts, whose words are no letters and deny nothing
    for text in texts:
        plain = plain[: text.start] + " " * (text.end - text.start) + plain[text.end :]
    chosen = _opening(plain, texts) if marked else _named(plain, texts)
    if chosen is None:
        return Reading(None) if _LETTER.search(plain) else None
    reason = None if chosen in texts else _REASON.search(plain, chosen.end)
    start, end = 0 if chosen in texts else chosen.end, reason.start() if reason else len(plain)
    others = {
        *_LETTER.findall(plain, start, end),
        *(text.answer for text in texts if start <= text.start < end),
    }
    clear = others <= {chosen.answer} and chosen.answer in (options(question) or others | {chosen.answer})
    return chosen if clear else Reading(None)


def _opening(plain: str, texts: list[Reading]) -> Reading | None:
    """The option with which a statement begins."""
    if letter := _OPENS.match(plain):
        return Reading(letter["letter"].upper(), *letter.span("letter"))
    if not texts or len(plain[: texts[0].start].split()) > 2 or _DENIES.search(plain, 0, texts[0].start):
        return None
    return texts[0] if _STANDS.match(plain, texts[0].end) else None


def _named(plain: str, texts: list[Reading]) -> Reading | None:
    """The option that a sentence without a mark names."""
    if _DENIES.search(plain):
        return None
    letters = [
        Reading(match[match.lastgroup or 0], *match.span(match.lastgroup or 0))
        for match in _NAMED.finditer(plain)
    ]
    if (opens := _OPENS.match(plain)) and not _CORRECT.match(plain, opens.end("letter")):
        rest = plain[opens.end("letter") :].rstrip()
        bare = not holds_word(rest) and (bool(texts) or not rest.endswith(":"))  # "A:" begins a turn
        letters = [Reading(opens["letter"].upper(), *opens.span("letter"))] if bare else []
        texts = []
    if len({letter.answer for letter in letters}) == 1:
        return letters[0]
    ends = [text for text in texts if not holds_word(plain[text.end :]) or _CORRECT.match(plain, text.end)]
    return ends[0] if ends and not letters else None


def _texts(sentence: str, question: str) -> list[Reading]:
    """The texts of options in a sentence, in their order; not those within longer ones."""
    found = list[Reading]()
    for letter, text in sorted(options(question).items(), key=lambda option: -len(option[1])):
        words = r"\s+".join(map(re.escape, text.strip().rstrip(".").split()))
        whole = rf"(?<![\w^=+*/-])(?<!\d[.,]){words}(?![\w^=+*/!%]|[.,]\d)"  # no part of a formula
        for match in re.finditer(whole, sentence, re.IGNORECASE):
            if not any(longer.start <= match.start() < longer.end for longer in found):
                found.append(Reading(letter, *match.span()))
    return sorted(found, key=lambda text: text.start)
