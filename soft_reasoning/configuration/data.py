"""The data of ``conf/``: models by name and the wording of prompts, in plain YAML.

Python reads it here, and the command line's Hydra gets it from here (``cli.source``). A prompt file, shipped
or a user's, has the keys of :class:`~soft_reasoning.prompts.Wording` and of a prompt's settings, and may say:

    inherits: [math]          the prompts whose values it starts from, in order
    exemplars: math           the worked reviews in conf/reviews, or a YAML file of the same layout
    chooses: {method: cot}    choices of other groups that the prompt makes the default

A review's ``exemplars`` may name a list of the worked reviews, and a task's those of another task.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml

from soft_reasoning.checks import choice, local_path
from soft_reasoning.engine.paths import is_bundled, is_url
from soft_reasoning.prompts import DATE, Wording
from soft_reasoning.types import UserError

PROMPT_SETTINGS: dict[str, Any] = {"layout": "auto", "system": None, "date": DATE, "chat_options": {}}
"""Settings of a prompt that do not depend on the type of answer, with their defaults."""

OPTIONAL = ("default_answer_type", "max_new_tokens", "others")
"""Further settings, which a prompt may have."""

PromptLike: TypeAlias = str | PathLike[str] | Mapping[str, object] | Wording
"""The name of a shipped prompt, a file, a mapping or an object."""


@dataclass(frozen=True)
class Entry:
    """A model or a prompt: its ``values``, and the choices of other groups that it makes the default."""

    values: Mapping[str, Any]
    chooses: Mapping[str, str]


@cache
def conf_dir() -> Path:
    """Return conf/ inside an installed wheel, or next to the package in a clone or editable install."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise UserError(f"expected the configuration in {package / 'conf'}; install the package again")


@cache
def models() -> Mapping[str, Mapping[str, Any]]:
    """Return the content of ``conf/models.yaml``."""
    text = (conf_dir() / "models.yaml").read_text(encoding="utf-8")
    folder = os.environ.get("SOFT_REASONING_MODELS", "~/.cache/soft_reasoning")
    return yaml.safe_load(text.replace('"{models}/', f'"{folder}/'))


def prompt_names() -> list[str]:
    """Return the names of the shipped prompts."""
    return sorted(file.stem for file in (conf_dir() / "prompts").glob("[!_]*.yaml"))


def is_file_name(name: str) -> bool:
    """Whether ``name`` names a file rather than a shipped prompt."""
    return name.endswith((".yaml", ".yml"))


def read_model(name: str) -> Entry:
    """Return the values of a model: a name of ``conf/models.yaml`` or on the hub, a folder, or a URL."""
    known = models()
    own = known[name] if name in known else {**known["demo" if is_bundled(name) else "custom"], "path": name}
    if is_url(name):
        own = {**own, "chooses": {"engine": "served"}}
    values = {**known["custom"], **own}
    return Entry(values, values.pop("chooses", {}))


def read_prompt(prompt: PromptLike) -> Entry:
    """Return a prompt: its settings, and under ``wording`` the texts.

    Raises:
        UserError: For an unknown name, a file that cannot be read, or content that is not a mapping.
    """
    if isinstance(prompt, str) and not is_file_name(prompt):
        return _shipped_prompt(choice("prompt", prompt, prompt_names()))
    if isinstance(prompt, str | PathLike):
        file = local_path("prompt", prompt)
        return _prompt(_inherited(_read(file, "prompt")), file.parent)
    return _prompt(_inherited(asdict(prompt) if isinstance(prompt, Wording) else prompt), Path())


@cache
def _shipped_prompt(name: str) -> Entry:
    return _prompt(_shipped(name), conf_dir() / "prompts")


def _prompt(content: Mapping[str, Any], folder: Path) -> Entry:
    wording = deepcopy({**content})
    chooses = wording.pop("chooses", {"verifier": "single_judge"})  # which needs no wording for programs
    worked = wording.pop("exemplars", None)
    settings: dict[str, Any] = {"answer_type": wording.pop("answer_type", None)}
    settings |= {key: wording.pop(key, default) for key, default in PROMPT_SETTINGS.items()}
    settings |= {key: wording.pop(key) for key in OPTIONAL if key in wording}
    if worked is not None:
        place = folder / worked if is_file_name(worked) else conf_dir() / "reviews" / f"{worked}.yaml"
        for review in _entries(wording, "reviews"):
            if isinstance(named := review.get("exemplars"), str):
                review["exemplars"] = _read(place, "exemplars").get(named, [])
    for task in _entries(wording, "tasks"):
        if isinstance(named := task.get("exemplars"), str):
            other = choice("prompt.tasks.exemplars", named, [*wording["tasks"]])
            task["exemplars"] = wording["tasks"][other].get("exemplars", [])
    return Entry({**settings, "wording": wording}, chooses)


def _entries(wording: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    entries = wording.get(key) or {}
    if not isinstance(entries, Mapping) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise UserError(f"prompt.{key}: expected names with a wording each, got {entries!r:.80}")
    return [*cast(Mapping[str, dict[str, Any]], entries).values()]


def _read(file: Path, key: str) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        if not isinstance(content, Mapping):
            raise ValueError(f"no keys but {content!r:.80}")
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:  # ValueError of UTF-8
        raise UserError(
            f"{key}={file}: expected a YAML file or the name of a shipped one, got {error!s:.200}"
        ) from error
    return cast(Mapping[str, Any], content)


@cache
def _shipped(name: str) -> Mapping[str, Any]:
    chooses = {} if name.startswith("_") else {"chooses": {}}
    return _inherited({**chooses, **_read(conf_dir() / "prompts" / f"{name}.yaml", "prompt")})


def _inherited(content: object) -> Mapping[str, Any]:
    """Return the keys of a prompt with those that it inherits."""
    if not isinstance(content, Mapping):
        raise UserError(f"prompt: expected keys such as ask, got {content!r:.80}")
    merged, parents = cast(Mapping[str, Any], {}), content.get("inherits", [])
    known = [*prompt_names(), "_base", "_paper"]
    if not isinstance(parents, list) or not all(parent in known for parent in parents):
        raise UserError(
            f"prompt.inherits: expected a list of {', '.join(prompt_names())}, got {parents!r:.80}"
        )
    for parent in parents:
        merged = _merged(merged, _shipped(parent))
    return _merged(merged, {key: value for key, value in content.items() if key != "inherits"})


def _merged(base: Any, own: Any) -> Any:
    """``own`` on ``base``: mappings key by key, other values replaced."""
    if not isinstance(base, Mapping) or not isinstance(own, Mapping):
        return own
    return {**base, **{key: _merged(base.get(key), value) for key, value in own.items()}}
