"""Options as they are typed: overrides of the configuration, in Hydra's grammar."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString

from soft_reasoning.configuration.errors import not_an_override
from soft_reasoning.types import UserError

WITH_VALUE = (
    "--cfg",
    "-c",
    "--package",
    "-p",
    "--config-dir",
    "-cd",
    "--config-path",
    "-cp",
    "--config-name",
    "-cn",
    "--experimental-rerun",
)
"""Flags of Hydra that take the next word."""
INFO = ("--info", "-i")
"""Flags of Hydra that may take the next word."""


@dataclass(frozen=True)
class Override:
    """An option with its value.

    Attributes:
        key: Such as ``embedding.dim``, or a group such as ``method``.
        value: Its text in Hydra's grammar (``5``, ``'a b'``, ``[1,2]``, or ``3,5`` for a sweep); None if the
            key is removed.
        sign: What stands before the key: nothing, ``+`` (add), ``++`` (add or change) or ``~`` (remove).

    Example:
        >>> Override.parse("embedding.dim=5")
        Override(key='embedding.dim', value='5', sign='')
    """

    key: str
    value: str | None
    sign: str = ""

    @classmethod
    def parse(cls, word: str) -> Override:
        """Read ``key=value``, ``+key=value`` or ``~key``.

        Raises:
            UserError: For a word of any other form.
        """
        key, equals, value = word.lstrip("+~").partition("=")
        sign = word[: len(word) - len(word.lstrip("+~"))]
        if not key or not (equals or sign == "~"):
            raise UserError(not_an_override(word))
        return cls(key, value if equals else None, sign)

    @classmethod
    def of(cls, key: str, value: Any) -> Override:
        """Return the option with a value of Python; text is quoted."""
        if isinstance(value, str):
            return cls(key, QuotedString(value, Quote.single).with_quotes())
        return cls(key, "null" if value is None else str(value))

    def __str__(self) -> str:
        return f"{self.sign}{self.key}" + ("" if self.value is None else f"={self.value}")

    @property
    def root(self) -> str:
        """The first part of the key, such as ``embedding``."""
        return re.split(r"[.@/]", self.key)[0]

    @property
    def text(self) -> str:
        """The value without quotes around it."""
        return (self.value or "").strip("'\"")

    @property
    def values(self) -> list[str]:
        """The texts of the values of a sweep, or the only one."""
        parsed = OverridesParser.create().parse_override(str(self))
        if not parsed.is_sweep_override():
            return [self.value or ""]
        return list(map(str, parsed.sweep_string_iterator()))

    @property
    def data(self) -> Any:
        """The value as a number, a truth value, None or text; a list or mapping as its text."""
        parsed: Any = OverridesParser.create().parse_override(str(self))
        value = self.value if parsed.is_sweep_override() else parsed.value()
        return value if isinstance(value, str | int | float | None) else self.value


Overrides: TypeAlias = Iterable["str | Override"]
"""Options, each as it is typed or as a value."""


def parse(overrides: Overrides) -> list[Override]:
    """Return ``overrides`` as values.

    Raises:
        UserError: For a word that is no override.
    """
    return [word if isinstance(word, Override) else Override.parse(word) for word in overrides]


def split_flags(words: Sequence[str]) -> tuple[list[Override], list[str]]:
    """Return the options among the words of a command line, and Hydra's flags with their values.

    Raises:
        UserError: For a word that is neither.
    """
    options: list[Override] = []
    flags: list[str] = []
    parts = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    for before, word in pairwise(["", *parts]):
        named = before in WITH_VALUE or (before in INFO and "=" not in word)
        if word.startswith("-") or named:
            flags.append(word)
        else:
            options.append(Override.parse(word))
    return options, flags
