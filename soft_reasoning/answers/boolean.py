"""Reading booleans.

1. A verdict is a word such as yes, no, true, false, correct, nope (``verdicts`` has all); "not" before it
   negates it. "The claim holds" is one too, and so are "It does." and "They were not."
2. A statement gives its first verdict. A conclusion ("so", "therefore") overrides what precedes it, unless
   the statement begins with a verdict. "not necessarily true", "maybe" and "it depends" are not verdicts, and
   a statement that holds one has no answer.
3. A text without a statement gives its last verdict at the end of a clause. The verdict that it begins with
   counts more, unless the last one concludes.
4. Where there is no verdict, a conclusion restates the question, and its verb says yes or no: "So they could
   have met", "Thus he did not use it".
"""

from __future__ import annotations

import re

from soft_reasoning.answers.reader import REFUSAL, Found, Rewriter, any_of, first_line, last_match
from soft_reasoning.answers.statements import WINDOW

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


_WORD = re.compile(r"\w")
_LETTERS = re.compile(r"[^\W\d_]")
_LETTER = re.compile(r"\W*(?:(?P<yes>y)|(?P<no>n))\W*", re.IGNORECASE)
_THUS = "so, therefore, thus, hence"
_BEFORE = re.compile(
    rf"(?:(?:^|[.!?,;:\n])\s{{0,3}}|(?:"
    rf"\b{any_of(f'{_THUS}, is, be, was, say, says, but, ist, est, es, это')}\s"
    r"|(?:\breturn|[=|])\s)\s*(?:(?:indeed|therefore|in\sfact|(?!only|hardly|barely|rarely)\w{2,12}ly)\s+)?"
    r"|['’]s\s+|\bmakes\s[\w\s]{1,30}\s)[\"'“*(]{0,3}$",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"[\"'”*)]{0,3}(?:\s{0,9}(?:[.,!;:|\n]|$)|\s(?:that|to\ssay|[-–—]|(?:on|to|for)\s(?:this|that))\s"
    r"|\s+(?:because|since|as)\b[^.!?\n]*)",
    re.IGNORECASE,
)
_OPENING = re.compile(r"\W*(?:(?:so|well|in\sshort),?\s)?", re.IGNORECASE)
_VERDICT_ENDS = re.compile(r"[\"'”)]{0,3}\s{0,3}(?:[,.!;:\n–—-]|$)")
_SENTENCE = re.compile(r"(?:(?<=[.!?])[ \t]+(?=[A-Z\"'“])|\n)\s*")
_CONCLUDING = re.compile(
    rf"(?:^\W*(?:and\s)?|[,;:]\s)(?:{any_of('so, thus, therefore, hence, consequently, in conclusion')}"
    rf"|{any_of('in short, overall, as a result, this means')})\b(?!\sthat\b)",
    re.IGNORECASE,
)
_SAYS = any_of("say, conclude, see, infer, assume, deduce, determine, tell, be said, be concluded")
_VERB = re.compile(
    r"\b(?:(?P<modal>could|would|can|did|does|do|will|should|must)|won(?=['’])|is|are|was|were|has|have|had)"
    rf"(?P<denied>n?['’]t\b|not\b|\s(?:\w+\s)?(?:not|never|hardly)\b)?(?!\s{_SAYS}\b)",
    re.IGNORECASE,
)
_UNSURE = re.compile(
    r"\b(?:may|might|maybe|perhaps|possibly|unclear|unsure|uncertain|depends?|neither\s\w+\snor)\b",
    re.IGNORECASE,
)
_LONGEST_SHORT = 80
_PLAIN = Rewriter(
    (r"\\(?:text|mathrm|mathbf|textbf)\s?\{([^{}]*)\}", r"\1"),
    (r"(?:(?<=[:|])|^)[*\s]{0,4}[✅✔✓☑]\ufe0f?(?=\s{0,3}(?:\||$))", " yes"),
    (r"(?:(?<=[:|])|^)[*\s]{0,4}[❌✗]\ufe0f?(?=\s{0,3}(?:\||$))", " no"),
    (r"[*$`\\{}\[\]✅❌✔✓✗☑\ufe0f]", ""),
    (IDIOMS, " "),
)


class BooleanReader:
    """Reads booleans; a :class:`~soft_reasoning.answers.reader.Reader`."""

    def read(self, statement: str) -> Found | None:
        start, stop = first_line(statement)
        if not _LETTERS.search(statement, start, stop):
            return None
        line = _PLAIN(statement[start:stop])
        if letter := _LETTER.fullmatch(line):
            return _found(letter, start, stop)
        if HAN.search(line):
            return _in_chinese(line, CHINESE.search(line), start, stop)
        if BOTH.search(line):
            return Found(None)
        verdict = VERDICT.search(line)
        opens = verdict is not None and not _WORD.search(line, 0, verdict.start())
        hedge = HEDGE.search(line)
        if hedge and not (
            opens and verdict and verdict.end() <= hedge.start() and _VERDICT_ENDS.match(line, verdict.end())
        ):
            commits = COMMITS.search(line, hedge.end())
            verdict = VERDICT.search(line, commits.end()) if commits else None
            return _found(verdict, start, stop) if verdict else Found(None)
        if verdict and opens:
            return _found(verdict, start, stop)
        if (refusal := REFUSAL.search(line)) and not VERDICT.search(line, refusal.end()):
            return Found(None)
        if verdict:
            return _found(verdict, start, stop)
        return _short(statement) or _restated(statement, max(0, len(statement) - WINDOW))

    def opens(self, statement: str) -> bool:
        start, stop = first_line(statement)
        if not _LETTERS.search(statement, start, stop):
            return False
        line = _PLAIN(statement[start:stop])
        if HAN.search(line):
            return CHINESE.match(line.lstrip()) is not None
        verdict = VERDICT.search(line)
        return verdict is not None and not re.search(r"\w{3}", line[: verdict.start()])

    def close(self, text: str) -> Found | None:
        from_end = max(0, len(text) - WINDOW)
        plain = _PLAIN(text[from_end:])
        if HAN.search(plain):
            first = None if from_end else CHINESE.match(plain)
            return _in_chinese(plain, first or last_match(CHINESE, plain), from_end, len(text))
        last_break = last_match(_SENTENCE, plain.rstrip())
        begin = last_break.end() if last_break else 0
        hedge = HEDGE.search(plain, begin)
        if BOTH.search(plain, begin) or (hedge and not COMMITS.search(plain, hedge.end())):
            return None
        opening, closing = _opening(text), _closing(plain)
        if opening:
            return opening
        if closing:
            return _found(closing, from_end, len(text))
        letter = _LETTER.fullmatch(text)
        return (letter and _found(letter, 0, len(text))) or _short(text) or _restated(text, from_end)

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        return _canonical(a) == _canonical(b)


def _in_chinese(line: str, verdict: re.Match[str] | None, start: int, stop: int) -> Found | None:
    return None if verdict is None or CHINESE_HEDGE.search(line) else _found(verdict, start, stop)


def _short(text: str) -> Found | None:
    if len(text) > _LONGEST_SHORT or (sentence := SHORT.fullmatch(_PLAIN(text))) is None:
        return None
    return Found(str(not sentence["denied"]), *sentence.span(), _PLAIN, 0, len(text))


def _closing(plain: str) -> re.Match[str] | None:
    """The last verdict at the end of a clause."""
    last, done = None, 0
    for verdict in VERDICT.finditer(plain):
        begin, end = verdict.span()
        anywhere = verdict["true"] or verdict["false"] or verdict["open"]
        plainly = verdict["yes"] or verdict["no"] or verdict["outright"]
        clause_ends = _AFTER.match(plain, end) if begin >= done and (anywhere or plainly) else None
        if clause_ends and (anywhere or _BEFORE.search(plain, max(0, begin - 60), begin)):
            last, done = verdict, clause_ends.end()  # a reason holds no verdict
    return last


def _opening(text: str) -> Found | None:
    """The verdict that a text begins with: "No. It melts"."""
    stop = min(len(text), 200)
    head = _PLAIN(text[:stop])
    verdict = VERDICT.search(head)
    if verdict is None or _OPENING.fullmatch(head, 0, verdict.start()) is None:
        return None
    alone = _SENTENCE.search(text.strip()) is None  # "Sure! Let us see" opens a reply
    ends = _VERDICT_ENDS.match(head, verdict.end()) and (alone or not verdict["sure"])
    return _found(verdict, 0, stop) if ends else None


def _restated(text: str, begin: int) -> Found | None:
    """What the last sentence says, if it concludes or is the only one: by a verdict in it, else by its verb.

    A modal verb restates the question; another verb may state a fact on the way, unless it is negated.
    """
    plain = _PLAIN(text[begin:]).rstrip()
    breaks = last_match(_SENTENCE, plain)
    start = breaks.end() if breaks else 0
    sentence = plain[start:]
    if sentence[-1:] not in (".", "!") or _UNSURE.search(sentence) or REFUSAL.search(sentence):
        return None
    concluding = _CONCLUDING.search(sentence)
    if concluding is None and breaks:
        return None
    start += concluding.end() if concluding else 0
    for verdict in VERDICT.finditer(plain, start):
        if not verdict["sure"] and not verdict["verb"] and verdict.group().lower() not in ("right", "likely"):
            return _found(verdict, begin, len(text))
    for verb in _VERB.finditer(plain, start):
        if verb["modal"] or verb["denied"]:
            return Found(str(not verb["denied"]), *verb.span(), _PLAIN, begin, len(text))
    return None


def _canonical(answer: str) -> str:
    found = BooleanReader().read(answer)
    return found.answer if found and found.answer else answer.strip()


def _found(verdict: re.Match[str], offset: int, stop: int) -> Found:
    groups = verdict.groupdict()
    name = next((name for name in ("a_yes", "a_no") if groups.get(name)), 0)
    return Found(truth(verdict), *verdict.span(name), _PLAIN, offset, stop)
