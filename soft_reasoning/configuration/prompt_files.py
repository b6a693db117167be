"""A user's prompt: a YAML file, a mapping or a :class:`~soft_reasoning.prompts.Wording`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

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


def prompt_settings(prompt: PromptLike) -> dict[str, Any]:
    """Return the content of the configuration's group ``prompt``; its keys are checked when it is built.

    Raises:
        UserError: For a file that cannot be read, and for content that is no mapping.
    """
    content: Any = asdict(prompt) if isinstance(prompt, Wording) else prompt
    if isinstance(prompt, str | os.PathLike):
        try:
            content = yaml.safe_load(Path(prompt).expanduser().read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise UserError(
                f"prompt={prompt}: expected a YAML file or the name of a shipped prompt, got {error!s:.200}"
            ) from error
    settings = {key: _mapping("prompt", content).get(key, default) for key, default in SETTINGS.items()}
    wording = _wording(Wording, "prompt", {k: value for k, value in content.items() if k not in SETTINGS})
    for key, kind in (("reviews", ReviewWording), ("tasks", TaskWording)):
        named = _mapping(f"prompt.{key}", wording.get(key) or {})
        wording[key] = {
            str(name): _wording(kind, f"prompt.{key}.{name}", value) for name, value in named.items()
        }
    return settings | {"wording": wording}


def _wording(kind: type, where: str, content: Any) -> dict[str, Any]:
    return {"_target_": f"soft_reasoning.prompts.{kind.__name__}", **_mapping(where, content)}


def _mapping(where: str, content: Any) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise UserError(f"{where}: expected keys such as ask, got {content!r:.80}")
    return content
