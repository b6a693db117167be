"""Phrases by which a text declines to answer."""

from __future__ import annotations

import re

REFUSAL = re.compile(
    r"\b(?:can(?:not|['’]?t| not)|could(?: not|n['’]t)|unable to|impossible to)\s{1,3}(?:be\s{1,3})?"
    r"(?:answer|determin|calculat|comput|solv|find|say|know|tell|provid|help|assist|conclu)\w*"
    r"|\b(?:do not|don['’]t) know\b|\b(?:not enough|insufficient) (?:information|data|context)\b"
    r"|\b(?:I|we)(?:['’]d| would)?(?: also)? need (?:to know|more|the|some|additional|further)\b[^.\n]{0,60}"
    r"\bto (?:solve|answer|determine|calculate|find|say|tell)\b"
    r"|\bno way (?:to|of) (?:tell|know|say)\w*"
    r"|\bunknown\b|\bundefined\b|\bundetermined\b|\bindeterminate\b|\bn/a\b|\bno answer\b"
    r"|\bnone of (?:these|the (?:above|options|choices|answers|others))\b",
    re.IGNORECASE,
)
