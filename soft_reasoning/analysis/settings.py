"""Configurations as flat keys: which of them results depend on, and which tell several runs apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

IGNORED = ("fresh", "progress", "limit", "max_live", "methods", "engine.max_batch_tokens", "hydra")
"""Keys that change no problem's result: how a run is watched, batched, or how many problems it takes."""


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``config`` as dotted keys; lists are values, and so are empty mappings."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def result_keys(config: Mapping[str, Any], ignore: Sequence[str] = IGNORED) -> dict[str, Any]:
    """The dotted keys that results depend on. ``ignore`` names keys, groups of keys, or ``*`` patterns."""

    def ignored(key: str) -> bool:
        return any(key == name or key.startswith(f"{name}.") or fnmatchcase(key, name) for name in ignore)

    return {key: value for key, value in sorted(flatten(config).items()) if not ignored(key)}


def differing(configs: Sequence[Mapping[str, Any]], ignore: Sequence[str] = IGNORED) -> list[dict[str, Any]]:
    """For each configuration, its values of the keys that are not the same in all of them.

    A key that repeats another one (an interpolation of it) is left out: of several keys with the same
    values the shortest stays. A key that a configuration does not have is None.
    """
    flat = [result_keys(config, ignore) for config in configs]
    seen: dict[str, str] = {}
    keys = {key for one in flat for key in one}
    for key in sorted(keys, key=lambda name: (name.count("."), len(name), name)):
        values = repr([one.get(key) for one in flat])
        if values != repr([flat[0].get(key)] * len(flat)):
            seen.setdefault(values, key)
    return [{key: one.get(key) for key in sorted(seen.values())} for one in flat]
