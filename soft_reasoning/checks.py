"""One vocabulary of checks for what a user configures; each raises UserError in one line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from string import Formatter

from soft_reasoning.types import UserError


def whole(name: str, value: object, *, least: int) -> int:
    """``value`` as an int of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"{name}: expected a whole number of at least {least}, got {value!r}")
    return value


def switch(name: str, value: object) -> bool:
    """``value`` if it is true or false, and not merely a word that stands for one."""
    if not isinstance(value, bool):
        raise UserError(f"{name}: expected true or false, got {value!r}")
    return value


def real(
    name: str,
    value: object,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    mend: str | None = None,
) -> float:
    """``value`` as a finite float within the bounds; ``mend`` is what to do about another one."""
    bounds = [
        f"{word} {bound:g}"
        for word, bound in (("at least", least), ("above", above), ("at most", most), ("below", below))
        if bound is not None
    ]
    wanted = " ".join(["a finite number", *bounds])
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if (
        not number
        or (least is not None and value < least)
        or (above is not None and value <= above)
        or (most is not None and value > most)
        or (below is not None and value >= below)
    ):
        raise UserError(f"{name}: expected {wanted}, got {value!r}{f'; {mend}' if mend else ''}")
    return float(value)


def choice(name: str, value: object, known: Sequence[str]) -> str:
    """``value`` if it is one of ``known``."""
    if value not in known:
        raise UserError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
    return str(value)


def form(name: str, value: object, fields: Mapping[str, object], *, needed: Sequence[str] = ()) -> str:
    """``value`` if it is a text that ``str.format`` fills in from ``fields`` (each with an example of what
    stands there) and that has the ``needed`` ones."""
    try:
        named = {field for _, field, _, _ in Formatter().parse(value)}
        value.format(**fields)
        lacking = set(needed) - named
    except (AttributeError, LookupError, TypeError, ValueError):  # no text, another field, a lone brace
        lacking = True
    if lacking:
        perhaps = (f"perhaps {{{field}}}" for field in fields if field not in needed)
        wanted = ", ".join([*(f"{{{field}}}" for field in needed), *perhaps])
        raise UserError(
            f"{name}: expected a text with {wanted} and no other field (a brace itself is {{{{ or }}}}), "
            f"got {value!r}"
        )
    return str(value)
