"""Building parts from the configuration stored in a run's folder, which is data and must not name code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf

from soft_reasoning.configuration.errors import one_line
from soft_reasoning.configuration.folder import conf_dir
from soft_reasoning.types import UserError

TARGET = "_target_"


def build_stored(settings: Any, where: str, *groups: str) -> Any:
    """Build the part that stored ``settings`` describe.

    Args:
        settings: Plain values.
        where: What messages call them.
        groups: The groups of conf/ whose classes they may name.

    Raises:
        UserError: If they name another class or another key of Hydra's, hold an interpolation, or their class
            refuses a value.
    """
    check_stored(settings, where, *groups)
    try:
        return instantiate(dict(settings))
    except Exception as error:  # whatever a class makes of wrong values
        line = one_line(error) or f"{where}: expected settings that its class takes, got {settings!r:.200}"
        raise UserError(line) from error


def check_stored(settings: Any, where: str, *groups: str) -> None:
    """Check that stored ``settings`` name only classes of ``groups``.

    Raises:
        UserError: As :func:`build_stored`.
    """
    if not isinstance(settings, Mapping) or not isinstance(settings.get(TARGET), str):
        raise UserError(f"{where}: expected settings of a part of this package, got {settings!r:.80}")
    for key, value in _leaves(settings):
        if key.startswith("_") and value not in _shipped(groups).get(key, ()):
            raise UserError(f"{where}: expected parts of this package, got {key}={value!r:.80}")
        if isinstance(value, str) and "${" in value:
            raise UserError(f"{where}: expected plain values, got {key}={value!r:.80}")


def shipped_settings(group: str) -> dict[str, dict[str, Any]]:
    """Return the settings in each file of a group of conf/, by name."""
    files = sorted(Path(conf_dir(), group).glob("*.yaml"))
    return {file.stem: {str(key): value for key, value in OmegaConf.load(file).items()} for file in files}


@cache
def _shipped(groups: tuple[str, ...]) -> dict[str, set[Any]]:
    """The values of Hydra's own keys, such as ``_target_``, in the files of ``groups``."""
    values: dict[str, set[Any]] = {}
    for file in (file for group in groups for file in Path(conf_dir(), group).glob("*.yaml")):
        for key, value in _leaves(OmegaConf.to_container(OmegaConf.load(file), resolve=False)):
            if key.startswith("_"):
                values.setdefault(key, set()).add(value)
    return values


def _leaves(content: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value in nested settings, with its key; a list's with the list's."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield from _leaves(value, str(name))
    elif isinstance(content, list | tuple):
        for value in content:
            yield from _leaves(value, key)
    else:
        yield key, content
