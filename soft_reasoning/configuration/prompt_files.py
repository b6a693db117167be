"""A prompt of one's own: a YAML file, a mapping or a :class:`~soft_reasoning.prompts.Wording`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml

from soft_reasoning.prompts import DATE, ReviewWording, TaskWording, Wording
from soft_reasoning.types import UserError

SETTINGS: dict[str, Any] = {
    "answer_type": None, "layout": "auto", "system": None, "date": DATE, "chat_options": {},
}  # fmt: skip
"""What a prompt holds beside its wording, with the defaults."""

PromptLike: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Wording
"""The name of a shipped prompt, a file, a mapping or an object."""


def is_file_name(name: str) -> bool:
    """Whether ``name`` is that of a file rather than of a shipped prompt."""
    return name.endswith((".yaml", ".yml"))


def prompt_settings(given: PromptLike) -> dict[str, Any]:
    """Return the content of the configuration's group ``prompt``.

    Raises:
        UserError: For a file that cannot be read, an unknown key, or a missing one.
    """
    if isinstance(given, Wording):
        return _settings(asdict(given), "prompt")
    if isinstance(given, Mapping):
        return _settings(given, "prompt")
    path = Path(given).expanduser()
    try:
        stamp = path.stat().st_mtime_ns
    except OSError as error:
        raise UserError(
            f"prompt={path}: expected a YAML file ({error.strerror}); give the path of one, or a shipped "
            "prompt by its name"
        ) from error
    return _of_file(path, stamp)


@cache
def _of_file(path: Path, stamp: int) -> dict[str, Any]:
    """The settings of the file as it was at ``stamp``; each key of the group reads it."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"prompt={path}: expected a YAML file, got {error!s:.200}") from error
    if not isinstance(given, Mapping):
        raise UserError(f"prompt={path}: expected keys such as ask and reviews, got {given!r:.80}")
    return _settings(cast(Mapping[str, Any], given), f"prompt={path}")


def _settings(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    wording = {key: value for key, value in given.items() if key not in SETTINGS}
    wording = _part(Wording, wording, where)
    for key, part in (("reviews", ReviewWording), ("tasks", TaskWording)):
        named = wording.get(key) or {}
        if not isinstance(named, Mapping):
            raise UserError(f"{where}: expected names with their wording in {key}, got {named!r:.80}")
        wording[key] = {str(name): _part(part, one, f"{where}: {key}.{name}") for name, one in named.items()}
    return {key: given.get(key, default) for key, default in SETTINGS.items()} | {"wording": wording}


def _part(part: type, given: Any, where: str) -> dict[str, Any]:
    """``given`` as the configuration of the wording class ``part``."""
    known = [one.name for one in fields(part)]
    needed = [one.name for one in fields(part) if one.default is MISSING and one.default_factory is MISSING]
    if not isinstance(given, Mapping):
        raise UserError(f"{where}: expected keys such as {', '.join(known)}, got {given!r:.80}")
    for key in given:
        if key not in known:
            more = [*SETTINGS, *known] if part is Wording else known
            raise UserError(f"{where}: expected keys among {', '.join(more)}, got {key}")
    for key in needed:
        if key not in given:
            raise UserError(f"{where}: expected the key {key}, got none; add it")
    return {"_target_": f"{part.__module__}.{part.__qualname__}", **given}
