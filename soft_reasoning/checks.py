"""Checks of parameters; each raises an OptionError of one line."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from string import Formatter
from typing import TypeGuard


class UserError(Exception):
    """A one-line error that the user can fix: the expected value, the actual value, and the fix."""

    def __init__(self, message: object = "") -> None:
        """Store ``message`` without line breaks, and with escapes for what UTF-8 cannot hold."""
        super().__init__(" ".join(str(message).encode(errors="backslashreplace").decode().splitlines()))


class OptionError(UserError, ValueError):
    """An invalid value of a parameter; the text begins with the parameter's name ("delta: expected ...").

    ``configuration.parts.make`` raises it again with the option's full key ("acquisition.delta: ...").

    Attributes:
        name: The name of the parameter, or the full key of the option.
        message: The text after the name.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name, self.message = name, message

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str]]:
        return type(self), (self.name, self.message)  # otherwise pickle passes the text alone


class NoSuchOption(OptionError):
    """An option that the chosen method does not have."""


def shortened(text: str) -> str:
    """Return ``text`` in at most 60 characters, for messages."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def whole(name: str, value: object, *, least: int, most: int = 2**63 - 1) -> int:
    """Return ``value`` if it is an int of at least ``least`` and at most ``most`` (64 bits by default)."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OptionError(name, f"expected a whole number of at least {least}, got {value!r:.40}")
    if value > most:
        raise OptionError(name, f"expected a whole number of at most {most}, got {value!r:.40}")
    return value


def counts(part: object, *names: str) -> None:
    """Check that the attributes ``names`` of ``part`` are whole numbers of at least 1."""
    for name in names:
        whole(name, getattr(part, name), least=1)


def switch(name: str, value: object) -> bool:
    """Return ``value`` if it is True or False (not a word such as "yes")."""
    if not isinstance(value, bool):
        raise OptionError(name, f"expected true or false, got {value!r}")
    return value


def finite(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a number that a float can hold."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def real(
    name: str,
    value: object,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    fix: str | None = None,
) -> float:
    """Return ``value`` as a finite float within the bounds; ``fix`` says how to correct a wrong value."""
    all_bounds = (
        ("at least", least, operator.ge),
        ("above", above, operator.gt),
        ("at most", most, operator.le),
        ("below", below, operator.lt),
    )
    bounds = [(word, bound, holds) for word, bound, holds in all_bounds if bound is not None]
    if not finite(value) or not all(holds(value, bound) for _, bound, holds in bounds):
        expected = " ".join(["a finite number", *(f"{word} {bound:g}" for word, bound, _ in bounds)])
        raise OptionError(name, f"expected {expected}, got {value!r:.40}{f'; {fix}' if fix else ''}")
    return float(value)


def choice(name: str, value: object, known: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``known``."""
    if value not in known:
        raise OptionError(name, f"expected one of {', '.join(known)}, got {value!r}")
    return str(value)


def texts(name: str, value: object) -> None:
    """Check that ``value`` is a list of non-empty strings."""
    if not isinstance(value, list | tuple) or not all(text and isinstance(text, str) for text in value):
        raise OptionError(name, f"expected a list of non-empty strings, got {value!r:.80}")


def local_path(name: str, value: str | PathLike[str]) -> Path:
    """Return ``value`` as a path, with the home directory that ``~`` or ``~user`` stands for."""
    try:
        return Path(value).expanduser()
    except TypeError as error:
        raise OptionError(name, f"expected a path, got {value!r:.40}") from error
    except RuntimeError as error:  # no such user, or none with a home directory
        raise OptionError(
            name, f"expected a home directory for ~, got {value} without one; write the whole path"
        ) from error


def form(name: str, value: object, fields: Mapping[str, object], *, needed: Sequence[str] = ()) -> str:
    """Return ``value`` if it is a template that ``str.format`` can fill in.

    Args:
        name: The name of the template in messages.
        value: The template.
        fields: The fields that it may have, each with an example value.
        needed: The fields that it must have.
    """
    try:
        str(value).format(**fields)
        used = {field for _, field, _, _ in Formatter().parse(str(value))}
    except (AttributeError, LookupError, TypeError, ValueError):  # an unknown field, or a single brace
        used = None
    if not isinstance(value, str) or used is None or not set(needed) <= used:
        listed = [f"{{{field}}}" if field in needed else f"perhaps {{{field}}}" for field in fields]
        raise OptionError(
            name,
            f"expected a string with {', '.join(listed)} and no other field (a brace is {{{{ or }}}}), "
            f"got {value!r}",
        )
    return value
