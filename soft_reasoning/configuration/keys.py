"""The keys of a configuration's options: where each value is set, and which files of conf/ have an option."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import DictConfig, OmegaConf

from soft_reasoning.configuration.conf_dir import choices, conf_dir

_REFERENCE = re.compile(r"\$\{(\.*)([\w.]+)\}")
"""A reference of OmegaConf to another key; dots before it start from where it stands."""

WITHOUT_OPTIONS = {"exemplars", "experiment", "preset", "prompt", "reviews"}
"""Groups of wording, and of options of other groups."""


def unresolved(config: DictConfig) -> dict[str, Any]:
    """Return ``config`` as plain data with its references as they are written."""
    return cast(dict[str, Any], OmegaConf.to_container(config, resolve=False))


def origin(data: Mapping[str, Any], key: str) -> str:
    """Return the key at which the value at ``key`` is set, after following references.

    Args:
        data: A configuration, as from :func:`unresolved`.
        key: A full key; its last parts need not exist.

    Example:
        >>> origin({"search": {"rounds": 4}, "method": {"rounds": "${search.rounds}"}}, "method.rounds")
        'search.rounds'
    """
    parts, node = key.split("."), cast(Any, data)
    for i, part in enumerate(parts):
        node = node.get(part) if isinstance(node, Mapping) else None
        if isinstance(node, str) and (reference := _REFERENCE.fullmatch(node)):
            up, name = len(reference[1]), reference[2]
            above = parts[: i + 1 - up] if up else []
            return origin(data, ".".join([*above, name, *parts[i + 1 :]]))
    return key


def option_keys(data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the full key of every option in ``data``, a configuration."""
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from option_keys(cast(Mapping[str, Any], value), f"{prefix}{name}.")
        elif not name.startswith("_"):
            yield f"{prefix}{name}"


def keys_named(name: str, config: DictConfig, groups: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the full keys of the options whose last part is ``name``: those in ``groups``, and the others.

    If an option refers to another one, only one of the two counts: in ``groups`` if either is there, and
    then the one that has the value.
    """
    data = unresolved(config)
    set_at = {key: origin(data, key) for key in option_keys(data) if key.rpartition(".")[2] == name}

    def inside(key: str) -> bool:
        return key.partition(".")[0] in groups

    inner = [key for key, place in set_at.items() if inside(key) and (place == key or not inside(place))]
    known = {set_at[key] for key in inner}
    return inner, [key for key, place in set_at.items() if not inside(key) and place == key not in known]


def choices_with(name: str) -> dict[str, list[str]]:
    """Return the full keys of the shipped options whose last part is ``name``, each with its choices.

    A choice is ``acquisition=ucb``.
    """
    owners: dict[str, list[str]] = {}
    for folder in sorted(Path(conf_dir()).iterdir()):
        if folder.name in WITHOUT_OPTIONS or not folder.is_dir():
            continue
        for choice in choices(folder.name):
            for key in dict.fromkeys(_keys_of(folder / f"{choice}.yaml", f"{folder.name}.")):
                if key.rpartition(".")[2] == name:
                    owners.setdefault(key, []).append(f"{folder.name}={choice}")
    return owners


def _keys_of(file: Path, prefix: str) -> Iterator[str]:
    """Yield the full keys of a file of conf/ and of those that it inherits, below ``prefix``."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    data = yaml.safe_load(text) or {}
    yield from option_keys(data, "" if "@package _global_" in text else prefix)
    for parent in data.get("defaults", ()):
        if isinstance(parent, str):
            yield from _keys_of(file.with_name(f"{parent}.yaml"), prefix)
        else:
            for group, choice in parent.items():
                if group.startswith("/") and group.endswith("@_here_"):
                    folder = file.parents[1] / group[1:].removesuffix("@_here_")
                    yield from _keys_of(folder / f"{choice}.yaml", prefix)
