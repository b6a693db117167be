"""A user's prompt, from a file, a mapping or an object."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from soft_reasoning.prompts import DATE, Wording
from soft_reasoning.types import UserError

SETTINGS: dict[str, Any] = {
    "answer_type": None,
    "layout": "auto",
    "system": None,
    "date": DATE,
    "chat_options": {},
}
"""Settings of a prompt besides its wording, with their defaults."""

PromptLike: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Wording
"""The name of a shipped prompt, a file, a mapping or an object."""


def prompt_settings(prompt: PromptLike) -> dict[str, Any]:
    """Return the configuration of the group ``prompt``; its keys are checked when it is built.

    Raises:
        UserError: For a file that cannot be read, and for content that is not a mapping.
    """
    content: Any = asdict(prompt) if isinstance(prompt, Wording) else prompt
    if isinstance(prompt, str | os.PathLike):
        try:
            content = yaml.safe_load(Path(prompt).expanduser().read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise UserError(
                f"prompt={prompt}: expected a YAML file or the name of a shipped prompt, got {error!s:.200}"
            ) from error
    wording = _with_target("Wording", "prompt", content)
    settings = {key: wording.pop(key, default) for key, default in SETTINGS.items()}
    for key, kind in (("reviews", "ReviewWording"), ("tasks", "TaskWording")):
        if not isinstance(entries := wording.get(key) or {}, Mapping):
            raise UserError(f"prompt.{key}: expected names with a wording each, got {entries!r:.80}")
        wording[key] = {
            str(name): _with_target(kind, f"prompt.{key}.{name}", entry) for name, entry in entries.items()
        }
    return {**settings, "wording": wording}


def _with_target(kind: str, where: str, content: Any) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise UserError(f"{where}: expected keys such as ask, got {content!r:.80}")
    return {"_target_": f"soft_reasoning.prompts.{kind}", **content}
