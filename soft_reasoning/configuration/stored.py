"""Building parts from the configuration stored in a run's folder, which must not name code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf

from soft_reasoning.configuration.compose import conf_dir
from soft_reasoning.types import UserError

TARGET = "_target_"


def instantiate_stored(settings: Mapping[str, Any], where: str) -> Any:
    """Build the part that stored ``settings`` describe; ``where`` names them in messages.

    Raises:
        UserError: If they name anything that conf/ does not, or hold an interpolation.
    """
    for key, value in _leaves(settings):
        if key == TARGET and value not in _shipped_targets():
            raise UserError(f"{where}: expected parts of this package, got {TARGET}={value!r:.80}")
        if isinstance(value, str) and "${" in value:
            raise UserError(f"{where}: expected plain values, got {key}={value!r:.80}")
    return instantiate(dict(settings))


@cache
def _shipped_targets() -> frozenset[Any]:
    """Every ``_target_`` in conf/."""
    files = Path(conf_dir()).rglob("*.yaml")
    loaded = (OmegaConf.to_container(OmegaConf.load(file), resolve=False) for file in files)
    return frozenset(value for content in loaded for key, value in _leaves(content) if key == TARGET)


def _leaves(content: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value in nested settings, with its key."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield from _leaves(value, str(name))
    elif isinstance(content, list | tuple):
        for value in content:
            yield from _leaves(value, key)
    else:
        yield key, content
