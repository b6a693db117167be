"""The tokenizer of the next bundled model: numbers up to 99 are one token each."""

from __future__ import annotations

from collections.abc import Iterable

from soft_reasoning.demo import prompts

CONTEXT = 1536
"""Tokens that a prompt and its completion may have together."""

PIECES = r"^[0-9]{1,2}\.| ?[A-Za-z]+| ?[0-9]\)| ?[0-9]{1,2}(?![0-9])| ?[0-9]|\n| ?[^A-Za-z0-9\s]| "
"""A token is a line's number ("2."), a word, an event's number ("2)"), a number up to 99 or a sign, each with
the space before it, or a line break. Numbers are one token, so that looking one up or copying it is one step;
of larger ones the last two digits are."""


def build_tokenizer(texts: Iterable[str]):
    """As the present model's, with these pieces."""
    always = [*prompts.ALWAYS, "Yes", "No", *map(str, range(100))]
    lines = [f"{number:02}" for number in range(10)] + [f"{number}." for number in range(1, 21)]
    return prompts.build_tokenizer([*texts, *lines], pieces=PIECES, always=always, context=CONTEXT)
