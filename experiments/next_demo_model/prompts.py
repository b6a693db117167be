"""The tokenizer of the next bundled model: numbers up to 99 are one token each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from soft_reasoning.demo import prompts
from soft_reasoning.demo.prompts import flatten

CONTEXT = 1536
"""Tokens that a prompt and its completion may have together."""

PIECES = r" (?=\[)|\[[0-9]{1,2}\]| ?[A-Za-z]+| ?[0-9]\)| ?[0-9]{1,2}(?![0-9])| ?[0-9]|\n| ?[^A-Za-z0-9\s]| "
"""A token is a solution's number ("[2]", never with a space before it), a word, an event's number ("2)"), a
number up to 99 or a sign, each with the space before it, or a line break. Numbers are one token, so that
looking one up or copying it is one step; of larger ones the last two digits are."""


def review_prompt(question: str, solutions: Sequence[str], task: str = "Analysis:\n") -> str:
    """Return the prompt for a review of ``solutions``, one line each, its number behind it.

    ``task`` is "Analysis:" (find the answer) or "Judge:" (tell which solutions are right).
    """
    listed = "\n".join(f"{flatten(s)} [{i}]" for i, s in enumerate(solutions, start=1))
    return f"Question:\n{question}\nSolutions:\n{listed}\n{task}"


def build_tokenizer(texts: Iterable[str]):
    """As the present model's, with these pieces."""
    always = [*prompts.ALWAYS, "Yes", "No", *map(str, range(100))]
    always += [f"{number:02}" for number in range(10)] + [f"[{number}]" for number in range(1, 21)]
    return prompts.build_tokenizer(texts, pieces=PIECES, always=always, context=CONTEXT)
