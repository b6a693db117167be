"""Reading the letter of a choice.

A sentence that begins with a letter gives it ("B) Paris"). Any other gives its only decisive letter. Denied
letters ("not A", "A is wrong") and letters in names ("vitamin C") are ignored; "A or B" is no choice. A
text whose first line is a single letter gives that letter.
"""

from __future__ import annotations

import re

from soft_reasoning.answers.reader import REFUSAL, Reader, Reading, blanked, decisive

_WORD = "[A-Za-zÀ-ÿ0-9'’]"
_SINGLE = rf"(?<!{_WORD})\(?(?-i:[A-Z])\)?(?!{_WORD})"
_LETTERS = rf"(?:options? |answers? |both )?{_SINGLE}(?:,? (?:and|or|nor) {_SINGLE}|, {_SINGLE}){{0,9}}"
_LEADS = (
    "Option|Choice|Letter|Answer|Only|So|Thus|Hence|Therefore|Definitely|Probably|Clearly|Obviously|Either|Both"
    "|And|Not|Say|Choose|Pick|Select|Mark"
)
_OUT = re.compile(
    r"(?:\b(?:not|neither|rather than|instead of|over|than|eliminat\w+|exclud\w+|ruling out|unlike)"
    rf"|n['’]t(?: be| choose)?) {_LETTERS}|\bso (?:is|are) {_LETTERS}"
    rf"|{_LETTERS}(?: (?:is|are|can be)(?: \w+)? (?:not|wrong|false|incorrect|impossible|eliminated|excluded"
    r"|ruled out|too)\b|[\s).:|–-]{1,5}(?:no|wrong|false|incorrect)\b| ?[✗❌])"
    r"|\b(?:vitamin|hepatitis|type|group|plan|particle|appendix|grade|point|class|mr\.|in|a|an|the|"
    rf"(?-i:(?!(?:{_LEADS})\b)[A-Z][a-z]+)) {_SINGLE}(?! is (?:right|correct|the))",
    re.IGNORECASE,
)
"""Letters that are denied, or part of a name: "vitamin C", "Plan B"."""
_LETTER = re.compile(
    r"\(([A-Za-z])\)|\b(?i:option|choice|letter) \(?([A-Za-z])\b"
    rf"|(?<!{_WORD})(?<![A-Z]\. )(?:([B-HJ-Z])(?!{_WORD}|\. [A-Z]\.)|([AI])(?!{_WORD}| [a-z])"
    r"|([AI])(?= (?:is|seems|looks|does|fits|works|satisfies|remains|matches|because|since|that|and|or"
    r"|better|correct)\b)"
    r"|([a-h])(?=\)|\W*$))"
)
_JOINS = re.compile(r"\)?(?:,? (?:and|or|und|oder|et|ou|y|o|и|или|&|is|are|looks|seems) | ?/ ?|, \(?[A-Z]\b)")
_UNSETTLED = re.compile(r"\b(?:maybe|perhaps|possibly|could be|might be)\b", re.IGNORECASE)
_FIRST = re.compile(r"[\s\"*(]*([A-Ha-h])[\s\"*).]*(?:\n|$)")


class ChoiceReader(Reader):
    """Reads the letters of choices."""

    def close(self, text: str) -> Reading | None:
        first_line = _FIRST.match(text)
        return _to_reading(first_line) if first_line else super().close(text)

    def sentence(self, sentence: str) -> Reading | None:
        letters = [_to_reading(match) for match in _LETTER.finditer(blanked(_OUT, sentence))]
        if not letters:
            return None
        if not re.search(r"\w", sentence[: letters[0].start]) and not _JOINS.match(sentence, letters[0].end):
            return letters[0]
        if REFUSAL.search(sentence) or _UNSETTLED.search(sentence):
            return Reading(None)
        letters = decisive(sentence, letters)
        return letters[-1] if len({letter.answer for letter in letters}) == 1 else Reading(None)


def _to_reading(match: re.Match[str]) -> Reading:
    group = match.lastindex or 0
    return Reading(match[group].upper(), *match.span(group))
