"""The thoughts of a model before its answer, and the marks around them.

In most vocabularies the marks are special tokens. Engines leave these in a text and drop all other special
tokens (``engine/text.py``).
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Marks(NamedTuple):
    """The text that opens thoughts and the text that ends them."""

    open: str
    close: str


CHANNELS = Marks("<|channel|>analysis<|message|>", "<|channel|>final<|message|>")
MARKS = (
    Marks("<think>\n", "</think>"),  # Qwen, DeepSeek and most others
    Marks("[THINK]", "[/THINK]"),  # Mistral
    Marks("<|channel>thought\n", "<channel|>"),  # Gemma 4
    CHANNELS,  # gpt-oss
)
SPECIAL = frozenset("<think> </think> [THINK] [/THINK] <|channel> <channel|> <|channel|> <|message|>".split())
"""The parts of marks that are single tokens in their vocabularies."""

_OPEN = re.compile("|".join(re.escape(marks.open.strip()) for marks in MARKS))
# gpt-oss begins each channel with special tokens and the word assistant.
_CLOSE = re.compile("(?:assistant)?(?:" + "|".join(re.escape(marks.close) for marks in MARKS) + ")")


def split(text: str, thinks: bool = False) -> tuple[str, str]:
    """Return the thoughts in ``text``, and the answer after them; empty where the text ends in thought.

    Args:
        text: What a model wrote.
        thinks: Whether its prompt ends in thoughts.
    """
    start = answer_start(text, thinks)
    if start == 0:
        return "", text
    thought = text if start is None else text[:start]
    return _OPEN.sub("", _CLOSE.sub("", thought)).strip(), "" if start is None else text[start:].lstrip("\n")


def answer_start(text: str, thinks: bool = False) -> int | None:
    """Return the place after the last thoughts in ``text``; None where the text ends in thought."""
    closes = [*_CLOSE.finditer(text)]
    start = closes[-1].end() if closes else 0
    return None if _OPEN.search(text, start) or thinks and not closes else start


def opened(text: str) -> Marks | None:
    """The marks of the thoughts at whose beginning a prompt's ``text`` ends, if any."""
    return next((marks for marks in MARKS if text.rstrip().endswith(marks.open.strip())), None)
