"""A command's configuration: Hydra composes it, and here it is checked and made plain.

An option that acts on nothing is refused, and parts that the method does not read are left out, so a manifest
holds only options that act.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf, open_dict

from soft_reasoning.checks import NoSuchOption, OptionError, choice, real, switch, whole
from soft_reasoning.cli.errors import check_words, one_line, unknown_key
from soft_reasoning.cli.groups import SHORT, known_keys
from soft_reasoning.configuration.context import build_method, fit_prompt
from soft_reasoning.configuration.data import conf_dir
from soft_reasoning.configuration.parts import make
from soft_reasoning.configuration.registry import PARTS
from soft_reasoning.engine.paths import is_bundled
from soft_reasoning.lab.runs.naming import compared_methods, label_of, typed_keys
from soft_reasoning.schedule.method import Limits, Method
from soft_reasoning.types import UserError

BUDGETS = ("own", "equal")
"""Budget of each method of a comparison: its configured budget, or the reference's tokens."""

_COMPOSING = threading.Lock()
"""Hydra's state is global."""
_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?([A-Za-z_][\w.]*)")
"""The key to which a value refers."""


def compose_config(words: Sequence[str] = ()) -> DictConfig:
    """Compose the configuration under ``words``, the options of a command line, and check it.

    Raises:
        UserError: In one line, for a choice or key that does not exist, and as :func:`check_config`.
    """
    return compose_choices(words)[0]


def compose_choices(words: Sequence[str] = ()) -> tuple[DictConfig, dict[str, str]]:
    """Return what :func:`compose_config` does, and the name of each group's choice."""
    try:
        with _COMPOSING:
            check_words(words)
            begun = GlobalHydra.instance().is_initialized()
            with nullcontext() if begun else initialize_config_dir(str(conf_dir()), version_base="1.3"):
                config = compose("config", overrides=[*words], return_hydra_config=True)
        chosen = chosen_names(config.hydra.runtime.choices)
        with open_dict(config):
            del config["hydra"]
        check_config(config, words, chosen)
    except Exception as error:
        if isinstance(error, UserError) or (line := one_line(error)) is None:
            raise
        raise UserError(line) from error
    return config, chosen


def chosen_names(choices: Mapping[Any, Any]) -> dict[str, str]:
    """Return the choices of a composed configuration by their group, without Hydra's own."""
    return {str(group): str(name) for group, name in choices.items() if not str(group).startswith("hydra/")}


def check_config(config: DictConfig, words: Sequence[str], chosen: Mapping[str, str]) -> None:
    """Check the top level of a composed configuration, and leave out the parts that the method does not read.

    Each part checks its own values when it is built. A class that is typed by ``_target_`` replaces a choice
    with all its options.

    Args:
        config: The configuration, which is changed.
        words: The options that it was composed with.
        chosen: The name of each group's choice.

    Raises:
        UserError: For an unknown key or a wrong value at the top, an option that the method does not read, or
            a prompt for answers of a type other than the data set's.
    """
    known, keys = known_keys(), typed_keys(words)
    for key in config:
        if key not in known:
            raise UserError(unknown_key(str(key), "", known))
    if chosen.get("model") == "demo" and not is_bundled(str(config.model.path)):
        raise UserError(f"model.path: expected model={config.model.path}, which has settings of its own")
    for group in PARTS:
        if f"{group}._target_" in keys and group not in keys:
            typed = {key.split(".")[1] for key in keys if key.startswith(f"{group}.")}
            kept = {name: value for name, value in config[group].items() if name in {*typed, "_partial_"}}
            config[group] = kept
    read = _read_parts(config)
    method = config.method.get("name", config.method.get("_target_"))
    for key in keys:
        root = re.split(r"[.@/]", key)[0]
        preset = root == "preset" and chosen.get("preset") != "default" and "embedding" not in read
        if preset or root in (*PARTS, *SHORT) and root not in read:
            raise NoSuchOption(key, f"expected a method that reads it, got method={method}; leave {key} out")
    with open_dict(config):
        for key in {*PARTS, *SHORT} - read:
            config.pop(key, None)
    _check_values(config)
    if "max_new_tokens" in keys and config.prompt.get("max_new_tokens") == "model":
        config.prompt.max_new_tokens = None  # the limit that was typed holds
    prompt = cast(Any, OmegaConf.to_container(config.prompt))
    fitted = fit_prompt(prompt, OmegaConf.select(config, "dataset.answer_type"), "dataset.answer_type")
    if fitted is not prompt:  # what was typed stays
        typed = {key: OmegaConf.select(config, key) for key in keys if key.startswith("prompt.")}
        config.prompt = fitted
        for key, value in typed.items():
            OmegaConf.update(config, key, value, force_add=True)
    if config.budget == "equal":
        if not methods_of(config):
            raise UserError("budget=equal: expected methods=[...] to compare, got none")
        if isinstance(config.reference, str):
            config.reference = label_of(config.reference.split(), config.budget)


def methods_of(config: DictConfig) -> dict[str, list[str]]:
    """Return the options of each method of a comparison by its label."""
    entries: Any = config.methods
    if OmegaConf.is_config(entries):
        entries = OmegaConf.to_container(entries, resolve=True)
    return compared_methods(entries, config.budget)


def _read_parts(config: DictConfig) -> set[str]:
    """The keys at the top of ``config`` that its method refers to, directly or through other keys."""
    values = cast(dict[str, Any], OmegaConf.to_container(config, resolve=False))
    others = {key: value for key, value in values.items() if key not in (*PARTS, *SHORT)}
    read, waiting = {"method"}, [str(values.get("method")), str(others)]
    while waiting:
        for root in {key.partition(".")[0] for key in _REFERENCE.findall(waiting.pop())}:
            if root in values and root not in read:
                read.add(root)
                waiting.append(str(values[root]))
    return read


def plain(config: DictConfig) -> dict[str, Any]:
    """Return a composed configuration as plain data, with its references resolved.

    Raises:
        UserError: In one line, for a value that is missing, and a reference to nothing.
    """
    try:
        return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True, throw_on_missing=True))
    except Exception as error:
        if (line := one_line(error)) is None:
            raise
        raise UserError(line) from error


def checked_method(config: DictConfig) -> Method:
    """Return the method of a configuration, once the values that need no model are checked.

    Raises:
        OptionError: With the key that was typed, such as ``lambda``.
    """
    values = plain(config)
    try:
        make(values["grader"], "grader")
        Limits(values["max_tokens"], values["max_seconds"])
        return build_method(values)
    except OptionError as error:
        raise typed_error(error, config) from error


def typed_error(error: OptionError, config: DictConfig) -> OptionError:
    """Return ``error`` with the key that a user types in place of an option's full key."""
    return type(error)(
        typed_key(cast(Any, OmegaConf.to_container(config, resolve=False)), error.name), error.message
    )


def typed_key(data: Mapping[str, Any], key: str) -> str:
    """Return the key at which the value at ``key`` is set, after following references.

    Args:
        data: A configuration with its references as they are written.
        key: A full key; its last parts need not exist.

    Example:
        >>> typed_key({"k": 5, "method": {"k": "${k}"}}, "method.k")
        'k'
    """
    parts, node = key.split("."), cast(Any, data)
    for i, name in enumerate(parts):
        node = node.get(name) if isinstance(node, Mapping) else None
        if isinstance(node, str) and (reference := _REFERENCE.match(node)):
            return typed_key(data, ".".join([reference[1], *parts[i + 1 :]]))
    return key


def _check_values(config: DictConfig) -> None:
    for key in ("fresh", "progress"):
        switch(key, config[key])
    whole("seed", config.seed, least=0)
    for key in ("max_new_tokens", "max_live"):
        whole(key, config[key], least=1)
    choice("budget", config.budget, BUDGETS)
    for key in ("cache", "label", "reference"):
        if not isinstance(config[key], str | None) or config[key] == "":
            raise UserError(f"{key}: expected a text, got {config[key]!r}")
    real("cache_gb", config.cache_gb, above=0.0)
