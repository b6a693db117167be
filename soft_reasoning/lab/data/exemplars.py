"""Exemplars: worked problems shown in a few-shot prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from yaml import YAMLError

from soft_reasoning.checks import local_path
from soft_reasoning.lab.data import fields
from soft_reasoning.prompts import Exemplar
from soft_reasoning.types import UserError


def from_config(source: Sequence[Mapping[str, Any]] | str | None) -> list[Exemplar]:
    """Read exemplars from a list of mappings (question, thought, answer) or from a YAML file.

    The file holds the list at its top or under ``exemplars``.

    Raises:
        UserError: If an entry is incomplete; it names the entry.
    """
    if isinstance(source, str):
        where, entries = source, _from_yaml(local_path("dataset.exemplars", source))
    else:
        where, entries = "dataset.exemplars", source or ()
    exemplars: list[Exemplar] = []
    for position, entry in enumerate(entries, start=1):
        try:
            parts = (fields.text(entry, key) for key in ("question", "thought", "answer"))
            exemplars.append(Exemplar(*parts))
        except UserError as error:
            raise UserError(f"{where} entry {position}: {error}") from error
    return exemplars


def _from_yaml(file: Path) -> list[Mapping[str, Any]]:
    try:
        content: Any = OmegaConf.to_container(OmegaConf.load(file))
    except (OSError, YAMLError) as error:
        raise UserError(f"dataset.exemplars: expected a YAML file, got {file} ({error!s:.160})") from error
    content = content.get("exemplars") if isinstance(content, Mapping) else content
    if not isinstance(content, list) or not all(isinstance(entry, Mapping) for entry in content):
        raise UserError(f"{file}: expected a list of entries with question, thought and answer")
    return content
