"""Words and phrases that say yes or no, in English, German, French, Spanish, Russian and Chinese."""

from __future__ import annotations

import re

from soft_reasoning.answers.reader import any_of

_ENDS = r"(?=\s*[.,;!]|\s*$)"
_SURELY = any_of("absolutely, certainly, definitely, likely, probably, surely, sure, of course")
_YES = any_of(
    """
    yes, yeah, yep, yup, true, correct, right, accurate, valid, plausible, possible, exactly, no doubt
    about it, no doubt about that, no doubt, quite so, without a doubt, without doubt, without question,
    no question, undoubtedly, you bet, by all means, very much so, the case, oui, ja, jawohl, sí, да
    """
)
_NO = any_of(
    """
    nope, nah, no, false, incorrect, wrong, untrue, inaccurate, invalid, impossible, implausible,
    improbable, unlikely, unfounded, a myth, a misconception, a common misconception, mistaken, non, nein, нет
    """
)
_TRUE_ELSEWHERE = any_of(
    """
    stimmt, vrai, vraie, wahr, richtig, korrekt, cierto, cierta, verdad, verdadero, verdadera, correcto,
    correcta, верно, правда, правильно
    """
)
_FALSE_ELSEWHERE = any_of(
    """
    stimmt nicht, faux, fausse, falsch, unwahr, falso, falsa, incorrecto, incorrecta, неверно, неправда,
    неправильно, ложно, ложь
    """
)
_ADJECTIVES = any_of("true, correct, right, accurate, possible, plausible, likely, yes, the case, exact, так")
_TRUE = f"{_ADJECTIVES}|{_TRUE_ELSEWHERE}"
_FALSE = any_of(
    "false, wrong, untrue, incorrect, inaccurate, unlikely, improbable, impossible, implausible, no"
)
_NOT = (
    r"(?:(?<![\w-])(?:not|cannot|can['’]?t|never|hardly|scarcely|far\sfrom|anything\sbut|nicht|pas"
    r"|no\ses|не)|n['’]t)"
    r"[ \t]{1,3}(?:be(?:ing)?[ \t])?"
    r"(?:(?:think|believe|say|agree|argue|claim)[ \t](?:[\w'’]+[ \t]){0,6}?(?:is|was|be|\w+['’]s)[ \t]"
    r"|(?:call|consider|deem)[ \t](?:[\w'’]+[ \t]){1,4}?)?"
)
_MODAL = any_of("could, would, can, did, does, will, should")
_SO = any_of("think so, believe so, say so, guess so, suppose so")
_HOLDS = rf"(?:holds?|stands?|checks?\sout)(?:\s(?:up|true|water))?{_ENDS}"
_CLAIM = any_of("statement, claim, assertion, premise, this, that, it")
VERDICT: re.Pattern[str] = re.compile(
    rf"(?P<false>{_NOT}(?:(?:really|actually|a|at\sall)[ \t])?(?:be[ \t])?(?:{_TRUE})(?![\w-])"
    rf"|(?:\bnot|n['’]t)\s{_SO}|\bdoubt\s(?:it|that|so)\b|\b{_CLAIM}\s(?:does\snot|doesn['’]t|cannot"
    rf"|can['’]t)\s{_HOLDS}"
    r"|\bI\sdisagree\b|\bcontradicts\sthe\b|\bfail(?:s|ed)?\sto\sbe\s(?:true|correct|right)\b"
    rf"|\b(?:a\s(?:\w{{1,12}}\s)?(?P<a_no>no)|on\sthe\scontrary)(?![\w-])"
    rf"|(?<![\w-]){_FALSE_ELSEWHERE}(?![\w-]))"
    rf"|(?P<true>(?:\b(?:be|is|was)\s)?\b(?:wrong|false|incorrect)\sto\s(?:say|claim|think"
    rf"|believe)\s(?:that\s)?"
    rf"(?:(?:it|this)\sis\s)?{_FALSE}(?![\w-])|{_NOT}(?:(?:really|actually|a"
    rf"|at\sall)[ \t])?(?:be[ \t])?{_FALSE}(?![\w-])"
    rf"|\b{_SO}|\b{_CLAIM}\s{_HOLDS}|\ba\s(?:\w{{1,12}}\s)?(?P<a_yes>yes)(?![\w-])|\blean\syes\b|\bI\sagree\b"
    rf"|(?<![\w-]){_TRUE_ELSEWHERE}(?![\w-]))"
    rf"|(?P<open>{_NOT}(?!so\b)\w+[ \t](?:be[ \t])?(?:{_TRUE}|{_FALSE})(?![\w-]))"
    rf"|(?<![\w-])(?P<outright>(?:{_SURELY}\s)?not(?:\sat\sall|\sreally|\slikely|\seven\sclose)?{_ENDS}"
    rf"|no\sway"
    rf"|\b{_MODAL}n['’]t{_ENDS}|(?:hardly|by\sno\smeans|far\sfrom\sit|(?:not\sa|no)\schance){_ENDS})"
    rf"|(?P<verb>\b{_MODAL}(?=[.!]?\s*$))"
    rf"|(?<![\w-])(?:(?P<yes>{_YES})|(?P<no>{_NO})|(?P<never>never|negative)|(?P<sure>indeed|affirmative"
    rf"|totally{_ENDS}"
    rf"|{_SURELY}(?!\W{{0,3}}{any_of('yes, no, not, true, false, correct, incorrect, wrong')}\b)))(?![\w-])",
    re.IGNORECASE,
)
"""``yes`` and ``no`` are plain words; ``sure`` and ``never`` may also stand in the middle of a sentence."""

IDIOMS = re.compile(
    rf"\bno\s{any_of('doubt, longer, matter, one, need, evidence, reason, question')}\b(?!\W*$|\sabout\b)"
    r"|\bwithout\s(?:a\s)?doubt\b(?!\W*$)|\bright\s(?:now|away|after|before)\b"
    r"|\b(?:yes\s?(?:or|/)\s?no|true\s?(?:or|/)\s?false|whether\s[^.:;\n]{0,80})\b",
    re.IGNORECASE,
)
"""Phrases that contain such words without being verdicts: "no doubt", "yes or no"."""
HEDGE = re.compile(
    r"\b(?:maybe|perhaps|depends|depending|unclear|unsure|possibly|sometimes|(?:not|n['’]t)\s(?:sure"
    r"|certain|clear)"
    r"|(?:hard|difficult|impossible)\sto\s(?:say|tell|know)|m(?:ay|ight)\sor\sm(?:ay|ight)\snot"
    r"|50\s?[/-]\s?50"
    r"|(?:part(?:ly|ially)|half|somewhat|mostly)\s(?:true|correct|right|false|wrong|yes|no)|(?:go"
    r"|be)\seither\sway"
    r"|(?:yes|true|correct|right)\s?(?:and|&)\s?(?:no|false|incorrect|wrong)|neither\s(?:yes|true|right)"
    r"|(?:could|can|may|might)\s(?:well\s)?be\s(?:either|both)?\s{0,3}(?:yes|true|correct|or|(?=[.!]?\s*$))"
    r"|oui\set\snon|ja\sund\snein|sí\sy\sno|да\sи\sнет|weder\sja|ni\s(?:oui|sí|vrai)|vielleicht"
    r"|peut-être|tal\svez|quizás?"
    r"|возможно|может\sбыть|depende|kommt\sdarauf\san|ça\sdépend|зависит)(?![\w-])",
    re.IGNORECASE,
)
"""Words that commit to nothing, unless a verdict follows "but", "so" or "I lean"."""
COMMITS = re.compile(
    rf"\b{any_of('but, so, therefore, thus, hence, overall, on balance, lean, leaning, answer is')}\b", re.I
)
_CASE = r"(?:in|for|if|when|on)\b"
_THEN = r"\b[^.\n]{0,60}[,;]\s(?:but\s|and\s)?"
BOTH = re.compile(
    rf"\b(?:(?:yes|true|correct){_THEN}(?:no|false|not)\s{_CASE}|(?:no|false|incorrect){_THEN}(?:yes"
    rf"|true)\s{_CASE})",
    re.I,
)
"""A verdict for one case and its opposite for another."""
CONCEDED = re.compile(
    rf"\W*(?:(?:while|although|though|even\sthough|despite)\b[^,;.\n]{{0,120}}[,;]"
    rf"|(?:(?:you|one)(?:['’]d|\s(?:might|may|would|could))\s(?:think|say)|initially|intuitively|my\sfirst"
    rf"|(?:some|many|most)(?:\speople)?\s(?:say|think|believe|argue)|at\sfirst(?:\s(?:glance|sight))?"
    rf"|it\s(?:may|might|would)\sseem)\b[^;.\n]{{0,120}}?"
    rf"(?:[,;.]\s{any_of('but, however, yet, on reflection, in fact, actually')}\b|\bbut\b))",
    re.IGNORECASE,
)
"""What a text grants before it says the opposite: "You'd think yes, but"."""
SHORT = re.compile(
    r"\W*(?:(?:yes|indeed|sure|well|so)\W{1,3})?(?:[\w'’]+\s){1,3}"
    r"(?:(?:certainly|definitely|really|indeed|probably|surely)\s)?"
    rf"{any_of('is, are, was, were, has, have, had, does, do, did, can, could, would, will, should, must')}"
    r"(?P<denied>n['’]t|\snot|not)?(?:\s(?:indeed|so|either|at\sall))?\W*",
    re.IGNORECASE,
)
"""A sentence of few words that ends with its verb: "It does", "They were not"."""

HAN = re.compile("[\u4e00-\u9fff]")
CHINESE = re.compile(
    r"(?:^|[.,;!:\n，、；]|答案|所以|因此|故)\s*(?:(?:答案|这|那|它|是){0,2}(?:"
    r"(?P<no>不是|不对|不能|不会|不可以|不可能|并非|没有|否定?|不)|(?P<yes>是|对|没错|可以|能|会|肯定|有))"
    r"|[\u4e00-\u9fff]{0,12}?(?:(?P<false>(?:并?不是?|并非)(?:正确|对|真|成立|属实)|错误?|假)"
    r"|(?P<true>正确|对|真|成立|属实)))的?(?=[.,!;，、；\s]|$)"
)
CHINESE_HEDGE = re.compile(r"也许|或许|(?<!不)可能|不确定|不一定|取决于|不知道|无法|是也不是|视情况")


def truth(verdict: re.Match[str]) -> str | None:
    """The answer that a match of ``VERDICT`` or ``CHINESE`` gives; None for "not necessarily true"."""
    groups = {name for name, text in verdict.groupdict().items() if text}
    return None if "open" in groups else str(bool(groups & {"true", "yes", "sure", "verb"}))
