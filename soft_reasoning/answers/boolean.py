"""Booleans: the verdict of a statement, such as yes, no, true or incorrect, or its denial.

A statement that holds two verdicts, doubts its verdict ("maybe", "rarely", "yes?") or concedes it ("while it
is true that") has none.
"""

from __future__ import annotations

import re

from soft_reasoning.answers.statement import DENIES, Place, Reading

_VERDICT = re.compile(
    r"""(?P<not>(?:\b(?:not|cannot|never|hardly|scarcely|far\sfrom|anything\sbut|by\sno\smeans|no\slonger|fail(?:s|ed)?\sto
        |rather\sthan|instead\sof)|n['’]t)\s(?:(?:hold|be|being|really|actually|exactly)\s){0,2})?
    \b(?:(?P<yes>yes|yep|yeah|yup|true|correct|accurate
        |(?:(?<=is\s)|(?<=['’]s\s)|(?<=not\s)|(?<=n['’]t\s))right(?=\W*$))
      |no(?=\s*(?:[.,;:!)\]}"'–—-]|$)|\s(?:because|since)\b)|nope|nah|false|incorrect|untrue|inaccurate
      |(?:(?<=is\s)|(?<=['’]s\s)|(?<=be\s)|(?<=not\s)|(?<=n['’]t\s))(?:wrong|impossible)(?=\W*$))\b(?!\sto\b)""",
    re.VERBOSE | re.IGNORECASE,
)
_EXCLAIMED = re.compile(
    r"""\W*(?:(?P<yes>absolutely|definitely|certainly|of\scourse|sure(?:ly)?|exactly|affirmative
        |(?:y|right)(?=\W*$)|indeed(?=\W*$|,\s(?:it|he|she|they|this|that)\s\w+\W*$))(?P<not>\snot)?
      |not\sat\sall|not\sreally|probably\snot|by\sno\smeans|no\sway|never|impossible|negative
      |(?:n|wrong)(?=\W*$))(?=\s*(?:[.,;!]|$))""",
    re.VERBOSE | re.IGNORECASE,
)
"""At the beginning of a statement or of the last sentence; before others it is a filler ("Sure! Let's")."""
_LETTER = re.compile(r"\W*(?:(?P<true>t)|f)\W*", re.IGNORECASE)
"""All of a statement after a mark; at the end of a text it can be a word that breaks off."""
_WORD = re.compile(r"\w")
_CONCEDES = re.compile(
    r"\W*(?:(?:while|although|though)\b[^,]*,?|it(?:['’]s|\sis)\s\w+\sthat\b[^,;]*(?=[,;]\s(?:but|yet|however)\b))",
    re.IGNORECASE,
)
_BUT = re.compile(r"[,;]\s(?:but|yet|however)\b", re.IGNORECASE)
_EITHER = re.compile(r"\W{0,4}(?:or|and|/)\b|\s?/|\W{1,3}is(?:\snot|n['’]t)\b")
"""After a verdict at the beginning that does not stand: "yes or no", "True is not the answer"."""
_DOUBTS = re.compile(
    r"\b(?:may|might|could|rarely|seldom|barely|hardly|scarcely|unlikely|(?<!\bno\s)doubt\w*|nobody|no one"
    r"|fails?|far from|anything but|half|no way|opposite|contrary|(?:difficult|hard) to (?:say|tell))\b",
    re.IGNORECASE,
)
_SUPPOSED = re.compile(r"\b(?:if|unless)\b[^,]*$", re.IGNORECASE)
"""Before a verdict that is a condition itself: "if that is true, yes"."""
_IF = re.compile(r"\b(?:if|unless)\b.*\bwould\b", re.IGNORECASE)
_ONLY_IF = re.compile(r"\s(?:(?:only\s)?(?:if|unless)|is(?:\snot|n['’]t|\sa\smistake))\b", re.IGNORECASE)
"""Before and after a verdict that has a condition, or is rejected: "to say it is true is a mistake"."""
_REJECTS = re.compile(
    r"\b(?:(?:mistake|mistaken|error|wrong|incorrect|false) to|(?:nobody|no one) (?:would|could|can|should))"
    r" \w+(?: that)?(?: \w+){0,4} $",
    re.IGNORECASE,
)
"""Before a verdict that is rejected as a whole: "it is a mistake to say that it is true"."""


def read(statement: str, question: str = "", place: Place = "stated") -> Reading | None:
    """The verdict that a statement gives; None if it holds none, without an answer if it is ambiguous."""
    if place == "stated" and (letter := _LETTER.fullmatch(statement)):
        return Reading(str(bool(letter["true"])), 0, letter.end())
    if place != "earlier" and (said := _EXCLAIMED.match(statement)):
        return Reading(str(bool(said["yes"] and not said["not"])), 0, said.end())
    verdicts = [
        Reading(str(bool(match["yes"]) != bool(match["not"])), *match.span())
        for match in _VERDICT.finditer(statement)
    ]
    if not verdicts:
        return None
    conceded = _CONCEDES.match(statement)
    begin = conceded.end() if conceded else 0
    for but in _BUT.finditer(statement):  # "yes, but it is hard" is a yes, "it seems true, but false" is none
        begin = but.end() if verdicts[-1].start >= but.end() else begin
    main = [v for v in verdicts if v.start >= begin and not _SUPPOSED.search(statement, begin, v.start)]
    if not main or statement.rstrip().endswith("?"):
        return Reading(None)
    first, before = main[0], statement[begin : main[0].start]
    agreed = len({verdict.answer for verdict in main}) == 1
    if main[0] != verdicts[0] and not _WORD.search(statement, 0, verdicts[0].start):  # "yes, but no"
        return verdicts[0] if verdicts[0].answer == first.answer else Reading(None)
    if not _WORD.search(before) and not _EITHER.match(statement, first.end):
        beside = len(main) > 1 and not agreed and not _WORD.search(statement, first.end, main[1].start)
        return Reading(None) if beside else first
    if _REJECTS.search(before):
        return first._replace(answer=str(first.answer == "False")) if len(main) == 1 else Reading(None)
    clear = agreed and not _unsure(before) and not _ONLY_IF.match(statement, first.end)
    return first if clear else Reading(None)


def _unsure(before: str) -> bool:
    """Whether what stands before a verdict denies or doubts it, or makes it hang on a condition."""
    return bool(DENIES.search(before) or _DOUBTS.search(before) or _IF.search(before))
