"""What the JSON of a run's folder must look like before anything is computed from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from soft_reasoning.checks import finite


@dataclass(frozen=True)
class Kind:
    """A plain value: what it is called, and whether a value is one."""

    name: str
    holds: Callable[[Any], bool]

    def __or__(self, other: Kind) -> Kind:
        return Kind(f"{self.name} or {other.name}", lambda value: self.holds(value) or other.holds(value))


@dataclass(frozen=True)
class Each:
    """A mapping of any keys, each value of one shape."""

    shape: Any


NULL = Kind("null", lambda value: value is None)
TEXT = Kind("a text", lambda value: isinstance(value, str))
SWITCH = Kind("true or false", lambda value: isinstance(value, bool))
NUMBER = Kind("a finite number", finite)
REAL = Kind("a number", lambda value: isinstance(value, float) and value == value or finite(value))
COUNT = Kind("a whole number", lambda value: finite(value) and isinstance(value, int) and value >= 0)
ANY = Kind("anything", lambda value: True)
MAPPING = Kind("an object", lambda value: isinstance(value, Mapping))


def fault(value: Any, shape: Any, where: str = "") -> str | None:
    """The first place at which ``value`` is not of ``shape``, in words; None where it is.

    A shape is a :class:`Kind`; a list of one shape; an :class:`Each`; or a mapping from keys to shapes, of
    which those that end in ``?`` may be missing or null.
    """
    place = f"{where}: " if where else ""
    if isinstance(shape, Kind):
        return None if shape.holds(value) else f"{place}expected {shape.name}, got {value!r:.60}"
    if isinstance(shape, list):
        if not isinstance(value, list | tuple):
            return f"{place}expected a list, got {value!r:.60}"
        parts = ((f"{where}[{i}]", one, shape[0]) for i, one in enumerate(value))
    elif not isinstance(value, Mapping):
        return f"{place}expected an object, got {value!r:.60}"
    elif isinstance(shape, Each):
        parts = ((_joined(where, key), one, shape.shape) for key, one in value.items())
    else:
        for key in shape:
            if not key.endswith("?") and key not in value:
                return f"{_joined(where, key)}: expected it, got nothing"
        named = ((key.removesuffix("?"), key.endswith("?"), inner) for key, inner in shape.items())
        parts = (
            (_joined(where, key), value[key], inner)
            for key, optional, inner in named
            if not (optional and value.get(key) is None)
        )
    return next((found for one in parts if (found := fault(one[1], one[2], one[0]))), None)


def _joined(where: str, key: str) -> str:
    return f"{where}.{key}" if where else str(key)
