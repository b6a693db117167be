"""Hydra's groups, which hydra-zen makes of the registry: each choice with all options of its class."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from typing import Any, cast

from hydra.core.config_store import ConfigStore
from hydra_zen import builds
from omegaconf import OmegaConf

from soft_reasoning.cli.source import overriding, register_source
from soft_reasoning.configuration.data import conf_dir
from soft_reasoning.configuration.parts import node
from soft_reasoning.configuration.registry import GROUPS, PARTS, PRESET_TOKENS, PRESETS, Part
from soft_reasoning.lab.runs.naming import run_name
from soft_reasoning.method.soft_reasoning import SoftReasoning

SHORT = set[str]()
"""The keys at the top of the configuration to which options of a method or its parts refer."""


@cache
def register() -> None:
    """Register all choices with Hydra, and the resolvers of conf/ with OmegaConf, once per process."""
    register_source()
    for group, choices in GROUPS.items():
        for name, chosen in choices.items():
            store(group, name, chosen)
    for name, chosen in PRESETS.items():
        _put("preset", name, {"max_new_tokens": PRESET_TOKENS} if chosen else {}, chosen)
    OmegaConf.register_new_resolver("run_name", run_name, replace=True)
    OmegaConf.register_new_resolver("product", lambda *factors: math.prod(factors), replace=True)
    OmegaConf.register_new_resolver("when", lambda holds, value: value if holds else None, replace=True)


def store(group: str, name: str, chosen: Part, top: Mapping[str, object] | None = None) -> None:
    """Register a choice.

    Its short options become keys at the top, to which its options refer.

    Args:
        group: Its group.
        name: Its name.
        chosen: The choice.
        top: Further values at the top of the configuration.
    """
    content, keys = deepcopy(node(chosen, "${{{}}}".format, _signature)), dict(top or {})
    _share_limit(content)
    for key, option in short_options(group, chosen).items():
        *path, last = option.split(".")
        place: Any = content
        for step in path:
            place = place.get(step) if isinstance(place, dict) else None
        # Otherwise the option is that of another choice.
        if isinstance(place, dict) and last in place and key not in GROUPS:
            keys[key], place[last] = place[last], f"${{{key}}}"
            SHORT.add(key)
    if name in ("served", "vllm"):
        keys["max_live"] = 256
    _put(group, name, {**keys, group: content}, chosen.chooses)


def short_options(group: str, chosen: Part) -> Mapping[str, str]:
    """Return the short options of a choice with the fields that they set.

    Those of a part are the end of Soft Reasoning's path to it: ``d`` is ``embedding.dim``, and so the ``dim``
    of each embedding.
    """
    if chosen.short is not None:
        return chosen.short
    if group not in PARTS or group == "method":
        return getattr(chosen.target, "short", {})
    paths = {key: path.split(".") for key, path in SoftReasoning.short.items()}
    own: Mapping[str, str] = getattr(chosen.target, "short", {})
    return {**own, **{key: path[-1] for key, path in paths.items() if path[-2:-1] == [group]}}


def _put(group: str, name: str, content: Mapping[str, Any], chooses: Mapping[str, str] | None = None) -> None:
    """Register ``content`` at the top of the configuration, with the choices of other groups."""
    stored = OmegaConf.create({**content, **overriding(chooses or {})})
    if OmegaConf.is_dict(stored.get(group)):
        OmegaConf.set_struct(stored[group], False)  # its class says what options it takes
    ConfigStore.instance().store(name, stored, group, package="_global_")


@cache
def _signature(target: Callable[..., Any], *given: str) -> dict[str, Any]:
    """The options of a class with their defaults, without those that are ``given``."""
    made = builds(target, populate_full_signature=True, zen_exclude=given)
    return cast(dict[str, Any], OmegaConf.to_container(OmegaConf.structured(made)))


def _share_limit(content: dict[str, Any]) -> None:
    """Let the option ``max_new_tokens`` of every part, and of the parts inside, refer to the run's."""
    for name, value in content.items():
        if name == "max_new_tokens":
            content[name] = "${max_new_tokens}"
        elif isinstance(value, dict):
            _share_limit(cast(dict[str, Any], value))


def known_keys() -> set[str]:
    """Return the keys allowed at the top of a configuration."""
    keys = [key for group in groups() for content in registered(group).values() for key in content]
    top = map(str, OmegaConf.load(conf_dir() / "config.yaml"))
    return {"model", "dataset", "prompt", "experiment", *groups(), *keys, *top} - {"defaults", "hydra"}


def groups() -> list[str]:
    """Return the groups of the registered choices."""
    register()
    nodes = ConfigStore.instance().repo
    return [group for group, entry in nodes.items() if isinstance(entry, dict) and group != "hydra"]


def registered(group: str) -> dict[str, dict[str, Any]]:
    """Return the registered choices of ``group`` by name: what each adds to the top of the configuration."""
    register()
    nodes = cast(dict[str, Any], ConfigStore.instance().repo.get(group, {}))
    return {
        file.removesuffix(".yaml"): cast(dict[str, Any], OmegaConf.to_container(entry.node))
        for file, entry in nodes.items()
    }
