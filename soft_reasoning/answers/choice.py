"""Reading the letter of a choice.

A sentence that begins with a letter gives it ("B) Paris"). Any other gives its only decisive letter. Denied
letters ("not A", "A is wrong") and those of names ("vitamin C") are passed over; "A or B" is no choice. A
text whose first line is a letter alone gives that.
"""

from __future__ import annotations

import re

from soft_reasoning.answers.reader import REFUSAL, Found, Reader, blanked, decisive

_WORD = "[A-Za-zÀ-ÿ0-9'’]"
_ONE = rf"(?<!{_WORD})\(?(?-i:[A-Z])\)?(?!{_WORD})"
_MANY = rf"(?:options? |answers? |both )?{_ONE}(?:,? (?:and|or|nor) {_ONE}|, {_ONE}){{0,9}}"
_LEADS = (
    "Option|Choice|Letter|Answer|Only|So|Thus|Hence|Therefore|Definitely|Probably|Clearly|Obviously|Either|Both"
    "|And|Not|Say|Choose|Pick|Select|Mark"
)
_OUT = re.compile(
    r"(?:\b(?:not|neither|rather than|instead of|over|than|eliminat\w+|exclud\w+|ruling out|unlike)"
    rf"|n['’]t(?: be| choose)?) {_MANY}|\bso (?:is|are) {_MANY}"
    rf"|{_MANY}(?: (?:is|are|can be)(?: \w+)? (?:not|wrong|false|incorrect|impossible|eliminated|excluded"
    r"|ruled out|too)\b|[\s).:|–-]{1,5}(?:no|wrong|false|incorrect)\b| ?[✗❌])"
    r"|\b(?:vitamin|hepatitis|type|group|plan|particle|appendix|grade|point|class|mr\.|in|a|an|the|"
    rf"(?-i:(?!(?:{_LEADS})\b)[A-Z][a-z]+)) {_ONE}(?! is (?:right|correct|the))",
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

    def close(self, text: str) -> Found | None:
        alone = _FIRST.match(text)
        return _found(alone) if alone else super().close(text)

    def sentence(self, sentence: str) -> Found | None:
        found = [_found(letter) for letter in _LETTER.finditer(blanked(_OUT, sentence))]
        if not found:
            return None
        if not re.search(r"\w", sentence[: found[0].start]) and not _JOINS.match(sentence, found[0].end):
            return found[0]
        if REFUSAL.search(sentence) or _UNSETTLED.search(sentence):
            return Found(None)
        found = decisive(sentence, found)
        return found[-1] if len({letter.answer for letter in found}) == 1 else Found(None)


def _found(letter: re.Match[str]) -> Found:
    group = letter.lastindex or 0
    return Found(letter[group].upper(), *letter.span(group))
