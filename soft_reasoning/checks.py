"""Checks of parameters; each raises OptionError in one line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from string import Formatter
from typing import TypeGuard

from soft_reasoning.types import UserError, shortened


class OptionError(UserError, ValueError):
    """A value that a parameter cannot have; the text begins with its name ("delta: expected ...").

    ``configuration.build`` writes the option's full name ("acquisition.delta: expected ...").
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")


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
    """Return ``value`` if it is True or False, rather than a word such as "yes"."""
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
    """Return ``value`` as a finite float within the bounds; ``fix`` says how to correct a wrong one."""
    bounds = [
        f"{word} {bound:g}"
        for word, bound in (("at least", least), ("above", above), ("at most", most), ("below", below))
        if bound is not None
    ]
    wanted = " ".join(["a finite number", *bounds])
    if (
        not finite(value)
        or (least is not None and value < least)
        or (above is not None and value <= above)
        or (most is not None and value > most)
        or (below is not None and value >= below)
    ):
        raise OptionError(name, f"expected {wanted}, got {value!r:.40}{f'; {fix}' if fix else ''}")
    return float(value)


def choice(name: str, value: object, known: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``known``."""
    if value not in known:
        raise OptionError(name, f"expected one of {', '.join(known)}, got {value!r}")
    return str(value)


def ids(problems: Iterable[tuple[str, str]]) -> None:
    """Check the ids of ``problems``, pairs of where a problem comes from and its id.

    Raises:
        UserError: For an id that is there twice, or that holds half of a surrogate pair, which no file can.
    """
    seen: dict[str, str] = {}
    for where, name in problems:
        if name in seen:
            raise UserError(f"{where}: expected a new id, got '{shortened(name)}' again (as in {seen[name]})")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"{where}: expected an id of whole characters, got {shortened(name)!r}; fix the data"
            ) from error
        seen[name] = where


def form(name: str, value: object, fields: Mapping[str, object], *, needed: Sequence[str] = ()) -> str:
    """Return ``value`` if it is a template that ``str.format`` can fill in.

    Args:
        name: What messages call it.
        value: The template.
        fields: The fields it may have, each with an example value.
        needed: The fields that it must have.
    """
    if not isinstance(value, str) or not _fills_in(value, fields, needed):
        perhaps = (f"perhaps {{{field}}}" for field in fields if field not in needed)
        wanted = ", ".join([*(f"{{{field}}}" for field in needed), *perhaps])
        raise OptionError(
            name,
            f"expected a text with {wanted} and no other field (a brace itself is {{{{ or }}}}), "
            f"got {value!r}",
        )
    return value


def _fills_in(text: str, fields: Mapping[str, object], needed: Sequence[str]) -> bool:
    try:
        text.format(**fields)
        return set(needed) <= {field for _, field, _, _ in Formatter().parse(text)}
    except (AttributeError, LookupError, TypeError, ValueError):  # another field, or a lone brace
        return False
