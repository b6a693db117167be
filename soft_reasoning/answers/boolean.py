"""Reading booleans.

A verdict is a word such as yes, no, true, false, correct, wrong; "not" before it reverses it. A sentence
that begins with a verdict gives it. Any other gives the verdict that its decisive ones agree on; "maybe",
"yes and no" and "not necessarily true" have no answer. Without a verdict, a conclusion says yes or no by its
verb ("So they could not have met"). A text that begins with a verdict gives it.
"""

from __future__ import annotations

import re

from soft_reasoning.answers.reader import REFUSAL, Reader, Reading, blanked, decisive

_SURELY = (
    "absolutely|certainly|definitely|exactly|indeed|likely|of course|probably|sure|surely|totally|you bet"
)
_YES = (
    "yes|yeah|yep|true|correct|right|accurate|valid|possible|plausible|the case|supported|affirmative|I agree"
    "|holds?(?: up| true)?|checks out|(?:think|believe|say|guess|suppose) so"
    "|without (?:a )?(?:doubt|question)"
    "|ja|wahr|richtig|stimmt|oui|vrai|sí|verdad|verdadero|cierto|да|верно|правда"
)
_NO = (
    "no|no way|nope|nah|false|incorrect|wrong|untrue|inaccurate|invalid|impossible|implausible|unlikely|never"
    "|negative|mistaken|unfounded|myth|(?:common )?misconception|hardly|far from it|I disagree|contradicts"
    "|nein|falsch|non|faux|falso|нет|неверно|неправда|ложь"
)
_NOT = (
    r"(?:\b(?:not|cannot|never|far from|anything but|fails to be|nicht|pas|no es|не)|n['’]t)\s"
    r"(?:(?:be|it|this|that|is|it['’]s|was|a|really|actually|at all|think|believe|say|call)\s){0,4}"
)
_VERDICT = re.compile(
    rf"(?P<open>{_NOT}(?:necessarily|always|entirely|sure|certain|clear)\b|\b(?:wrong|incorrect) to \w+)"
    rf"|(?P<outright>(?:\b(?:{_SURELY})\s)?\bnot(?: at all| really)?(?=\s*(?:[.,;!]|$)))"
    rf"|(?P<not>{_NOT})?(?<![\w-])(?:(?P<yes>{_YES}|(?:{_SURELY})(?=\s*(?:[.,;:!]|$)))"
    rf"|(?P<no>{_NO})(?! (?:doubt|longer|matter|one|need|evidence|reason|question)\b))(?![\w-])"
    r"|(?<![\u4e00-\u9fff])(?:(?P<bu>不是|不对|不能|不会|否|错误?)|(?P<shi>是的?|对|正确))(?![\u4e00-\u9fff])"
    r"|(?P<tick>[✅✔✓])|(?P<cross>[❌✗])|(?P<y>^\W*y\W*$)|(?P<n>^\W*n\W*$)",
    re.IGNORECASE,
)
_UNSETTLED = re.compile(
    r"\b(?:maybe|perhaps|depends|depending|unclear|unsure|possibly|sometimes|may|might|not sure|either way"
    r"|neither|both|part(?:ly|ially) \w+|half true|vielleicht|peut-être|tal vez|quizás?)\b"
    r"|50\s?[/-]\s?50|也许|不确定|不一定|取决于",
    re.IGNORECASE,
)
_EITHER = re.compile(r"\b(?:yes|true) ?(?:or|/) ?(?:no|false)\b|\bwhether\b[^.,:;\n]{0,80}", re.IGNORECASE)
_MODAL = re.compile(
    r"\b(?:so|thus|therefore|hence|consequently|in conclusion|in summary|based on this),?\s[^.!?\n]*?"
    r"\b(?P<verb>(?:could|would|can|did|does|will)(?P<not>n['’]t\b|not\b|\s(?:\w+ly\s)?not\b)?)",
    re.IGNORECASE,
)
_SHORT = re.compile(
    r"\W*(?:\w+ ){1,2}(?P<verb>(?:is|are|was|were|has|have|had|does|do|did|can|could|would|will|should)"
    r"(?P<not>n['’]t| not)?)\W*",
    re.IGNORECASE,
)
_ENDS = re.compile(r"[\"'”)\]}]*\s*(?:[.,!;:–—\n-]|$)")


class BooleanReader(Reader):
    """Reads booleans."""

    def close(self, text: str) -> Reading | None:
        return _opening(text[:200]) or super().close(text)

    def sentence(self, sentence: str) -> Reading | None:
        sentence = blanked(_EITHER, sentence)
        if opening := _opening(sentence):
            return opening
        verdicts = [_to_reading(match) for match in _VERDICT.finditer(sentence)]
        decided = decisive(sentence, verdicts)
        if (_UNSETTLED.search(sentence) or REFUSAL.search(sentence)) and decided == verdicts:
            return Reading(None)
        if decided:
            return decided[0] if len({verdict.answer for verdict in decided}) == 1 else Reading(None)
        verb = _SHORT.fullmatch(sentence) or _MODAL.search(sentence)
        return Reading(str(not verb["not"]), *verb.span("verb")) if verb else None


def _opening(sentence: str) -> Reading | None:
    """The verdict that a sentence begins with, followed by punctuation."""
    match = _VERDICT.search(sentence)
    if match is None or re.search(r"\w", sentence[: match.start()]) or not _ENDS.match(sentence, match.end()):
        return None
    return _to_reading(match)


def _to_reading(match: re.Match[str]) -> Reading:
    groups = {name for name, text in match.groupdict().items() if text}
    positive = bool(groups & {"yes", "shi", "tick", "y"}) != ("not" in groups)
    return Reading(None if "open" in groups else str(positive), *match.span())
