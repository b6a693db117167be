"""Regular expressions built from readable lists of words."""

from __future__ import annotations

import re
from collections import deque


def any_of(words: str) -> str:
    r"""Return a group that matches one of ``words``, separated by commas; a space matches any white space.

    >>> print(any_of("so, in total"))
    (?:so|in\stotal)
    """
    alternatives = (word.strip().replace(" ", r"\s") for word in words.split(","))
    return f"(?:{'|'.join(alternatives)})"


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match of ``pattern`` in ``text``."""
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)
