"""Which settings tell several runs apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from soft_reasoning.runs.manifest import CLASS, DRAWS, IGNORED, setting_keys

NAMES = ("model.path", "dataset.name")
"""Keys from which others follow: a data set determines prompts and exemplars."""


def is_draw(key: str) -> bool:
    """Whether ``key``, or the key it is copied from, is one of ``DRAWS``."""
    return key.removeprefix("method.") in DRAWS


def differing(configs: Sequence[Mapping[str, Any]], ignore: Sequence[str] = IGNORED) -> list[dict[str, Any]]:
    """Return, for each configuration, its values of the keys that differ between them.

    Keys that repeat others are left out:

    - Of several keys with the same values the shortest stays.
    - The parts of something that only some configurations have follow from the key that chose it.
      They are named only where nothing else distinguishes two runs.
    - A class follows from a plain key (a name) that determines it.
    - What follows from one of ``NAMES`` is left out.
    - If every configuration has a ``label``, it replaces all that follows from it.
    """
    flat = [setting_keys(config, ignore) for config in configs]
    common = [key for key in flat[0] if all(key in one for one in flat)] if flat else []
    keys = [key for key in common if len({repr(one[key]) for one in flat}) > 1]
    if not keys:  # nothing else distinguishes them
        keys = sorted({key for one in flat for key in one} - set(common))
    for name in NAMES:
        if name in keys:
            keys = [key for key in keys if key == name or key in NAMES or not _decides(flat, name, key)]
    by_values: dict[str, str] = {}
    for key in sorted(keys, key=lambda name: (name.count("."), len(name), name)):
        by_values.setdefault(repr([one.get(key) for one in flat]), key)
    plain = [key for key in by_values.values() if not key.endswith(CLASS)]
    classes = [key for key in by_values.values() if key.endswith(CLASS)]
    chosen = plain + [key for key in classes if not any(_decides(flat, p, key) for p in plain)]
    rest = sorted({key for one in flat for key in one} - set(common), key=lambda name: (len(name), name))
    for key in rest:  # parts that only some have, if they distinguish runs that are equal so far
        if _kinds(flat, [*chosen, key]) > _kinds(flat, chosen):
            chosen.append(key)
    chosen.sort()
    labels = [{"label": config["label"]} for config in configs if config.get("label")]
    if len(labels) < len(flat) or all(one == labels[0] for one in labels):
        labels = [{} for _ in flat]
    both = [one | label for one, label in zip(flat, labels, strict=True)]
    chosen = [key for key in chosen if not (labels[0] and _decides(both, "label", key))]
    return [
        label | {key.removesuffix(CLASS): _readable(key, one.get(key)) for key in chosen}
        for one, label in zip(flat, labels, strict=True)
    ]


def _kinds(flat: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> int:
    """How many of the configurations differ in ``keys``."""
    return len({repr([one.get(key) for key in keys]) for one in flat})


def _decides(flat: Sequence[Mapping[str, Any]], key: str, other: str) -> bool:
    """Whether equal values of ``key`` always come with equal values of ``other``."""
    pairs = {(repr(one.get(key)), repr(one.get(other))) for one in flat}
    return len(pairs) == len({value for value, _ in pairs})


def _readable(key: str, value: Any) -> Any:
    return str(value).rpartition(".")[2] if key.endswith(CLASS) else value
