"""One-line errors for the user: the expected value, the actual value, and the fix."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from soft_reasoning.checks import OptionError
from soft_reasoning.configuration.choices import groups, known_keys, registered
from soft_reasoning.types import UserError


class NoSuchOption(OptionError):
    """An option that the chosen method does not have."""


def one_line(error: BaseException) -> str | None:
    """Return the one line for a user's error, whatever raised it; None for an error of this package.

    A cause may hold the line. Hydra's messages about overrides are replaced, since they recommend adding keys
    that nothing would read.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    text = " ".join(str(error).split())
    match error:
        case OverrideParseException():
            return not_an_override(str(error.override))
        case MissingConfigException(missing_cfg_file=str(file)) if file:
            group, _, name = file.rpartition("/")
            names = [choice for choice in error.options or () if not choice.startswith("_")]
            return f"{group}: expected one of {', '.join(names) or 'none'}, got {name}{near(name, names)}"
        case HydraException() if several := re.match(r"Ambiguous value for argument '(.+?)' 1\.", text):
            return (
                f"{several[1]}: expected one value, got several; soft-reasoning sweep runs each, brackets "
                "make them a list, quotes a text"
            )
        case HydraException() if refused := re.search(r"Could not override '([^']+)'", text):
            return _refused_override(refused[1], error.__cause__)
        case OmegaConfBaseException():
            first, *more = str(error).splitlines()
            named = re.search(r"full_key: (\S+)", " ".join(more))
            return f"{error.full_key or (named and named[1]) or 'configuration'}: {first}"
        case HydraException():
            return text or " ".join(str(error.__cause__).split())
        case ValueError() if _is_raised_by("hydra", error):  # such as a group set to a number
            return text
        case TypeError() if _is_raised_by("hydra", error):
            return "a group: expected the name of a choice, such as method=cot, got a list of other values"
        case _:
            return None


def not_an_override(word: str) -> str:
    """Return the message for a word that is not ``key=value``."""
    if not (key := word.strip().lstrip("+").partition("=")[0]).isascii():
        return unknown_key(key, "", known_keys())
    return (
        f"{word.strip() or 'an empty word'}: expected key=value, got something else; put values with =, "
        "commas, brackets or quotes into quotes"
    )


def _is_raised_by(package: str, error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and package in Path(frames[-1].filename).parts


def _refused_override(key: str, cause: BaseException | None) -> str:
    """The message for an override whose key or group does not exist."""
    if key == "experiment":
        return "experiment: expected +experiment=NAME, got it without the +"
    if isinstance(cause, OmegaConfBaseException) and cause.parent_node is not None:
        where, _, name = str(cause.full_key).rpartition(".")
        if where:
            return unknown_key(name, where, cause.parent_node)
    root = re.split(r"[.@/]", key)[0]
    if root in known_keys():
        return (
            f"{key}: expected a method with parts that read it, got one that does not; leave it out, or "
            "choose another method"
        )
    return unknown_key(root, "", known_keys())


def unknown_key(key: str, where: str, known: Iterable[Any]) -> str:
    """Return the message for a ``key`` that is not among the ``known`` keys of ``where`` ("" is the top)."""
    names = sorted(str(name) for name in known if not str(name).startswith("_"))
    full = f"{where}.{key}" if where else key
    elsewhere = _owners(key)
    others = ", ".join(elsewhere.get(full) or ())
    similar = near(key, names) or near(key, known_keys())
    if others:
        fix = f"; {others} has it" if others.count("=") == 1 else f"; {others} have it"
    elif not elsewhere:
        otherwise = (
            "; leave it out, or add it with + if its class takes it"
            if where
            else "; --help lists the groups, --cfg job the keys"
        )
        fix = similar or otherwise
    else:
        fix = f"; did you mean {' or '.join(elsewhere)}?"
    if where:
        return f"{full}: expected one of its keys ({', '.join(names) or 'none'}), got {key}{fix}"
    return f"{full}: expected a key or group of the configuration, got {key}{fix}"


def _owners(name: str) -> dict[str, list[str]]:
    """The full keys of options whose last part is ``name``, each with its choices (``acquisition=ucb``)."""
    found: dict[str, list[str]] = {}
    for group in groups():
        for chosen, node in registered(group).items():
            for key in _keys(node):
                if key.rpartition(".")[2] == name:
                    found.setdefault(key, []).append(f"{group}={chosen}")
    return found


def _keys(node: Any, prefix: str = "") -> list[str]:
    if not isinstance(node, dict):
        return [prefix]
    values = cast(dict[str, Any], node)
    inner = [
        (name, value) for name, value in values.items() if not name.startswith("_") and name != "defaults"
    ]
    return [key for name, value in inner for key in _keys(value, f"{prefix}.{name}".lstrip("."))]


def near(name: str, names: Iterable[str]) -> str:
    """Return the end of a message that suggests the name most like ``name``; empty if none is similar."""
    close = difflib.get_close_matches(name, [*names], n=1)
    return f"; did you mean {close[0]}?" if close else ""
