"""One-line errors for the user: the expected value, the actual value, and the fix."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from soft_reasoning.cli.groups import groups, known_keys, registered
from soft_reasoning.configuration.parts import near
from soft_reasoning.lab.runs.naming import typed_keys
from soft_reasoning.types import UserError


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
            fix = near(name, names)
            known = "a name that exists" if fix else f"one of {', '.join(names) or 'none'}"
            return f"{group}: expected {known}, got {name}{fix}"
        case HydraException() if several := re.match(r"Ambiguous value for argument '(.+?)' 1\.", text):
            return (
                f"{several[1]}: expected one value, got several; soft-reasoning sweep runs each, brackets "
                "make them a list, quotes a text"
            )
        case HydraException() if refused := re.search(r"Could not override '([^']+)'", text):
            return _refused_override(refused[1], error.__cause__)
        case MissingMandatoryValue():
            return f"{error.full_key}: expected a value, got none; add {error.full_key}=VALUE"
        case OmegaConfBaseException():
            first, *more = str(error).splitlines()
            named = re.search(r"full_key: (\S+)", " ".join(more))
            return f"{error.full_key or (named and named[1]) or 'configuration'}: {first}"
        case HydraException():
            return text or " ".join(str(error.__cause__).split())
        case ValueError() | RuntimeError() if _is_raised_by("hydra|submitit", error):
            return text  # such as no Slurm on this machine
        case _:
            return None


def check_words(words: Sequence[str]) -> None:
    """Raise a UserError for a word without its key, and for a choice that is no name."""
    known = {"model", "dataset", "prompt", "experiment", *groups()}
    for key, word in zip(typed_keys(words), words, strict=True):
        if word.startswith("="):
            raise UserError(not_an_override(word))
        if key in known and "=" in word:
            typed = OverridesParser.create().parse_override(word)
            if not (typed.is_sweep_override() or isinstance(typed.value(), str)):
                raise UserError(f"{key}: expected the name of a choice, got {word.partition('=')[2]}")


def not_an_override(word: str) -> str:
    """Return the message for a word that is not ``key=value``."""
    return (
        f"{word.strip() or 'an empty word'}: expected key=value, got something else; put a value with other "
        "characters than letters and digits into quotes, and those into quotes of the shell"
    )


def _is_raised_by(packages: str, error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and not {*packages.split("|")}.isdisjoint(Path(frames[-1].filename).parts)


def _refused_override(key: str, cause: BaseException | None) -> str:
    """The message for an override whose key or group does not exist."""
    if key == "experiment":
        return "experiment: expected +experiment=NAME, got it without the +"
    if isinstance(cause, OmegaConfBaseException) and cause.parent_node is not None:
        where, _, name = str(cause.full_key).rpartition(".")
        if where:
            return unknown_key(name, where, cause.parent_node)
    root, known = re.split(r"[.@/]", key)[0], known_keys()
    if root in known:
        return f"{key}: expected a method that reads it, got one that does not; leave {key} out"
    return unknown_key(root, "", known)


def unknown_key(key: str, where: str, known: Iterable[Any]) -> str:
    """Return the message for a ``key`` that is not among the ``known`` keys of ``where`` ("" is the top)."""
    names = sorted(str(name) for name in known if not str(name).startswith("_"))
    parts = [
        f"{group}.{key}"
        for group in groups()
        if any(key in (content.get(group) or {}) for content in registered(group).values())
    ]
    fix = near(key, names) or near(key, known_keys()) or "; --help lists the groups, --cfg job the keys"
    if parts:
        fix = f"; did you mean {' or '.join(parts)}?"
    if where:
        return f"{where}.{key}: expected one of its keys ({', '.join(names) or 'none'}), got {key}{fix}"
    return f"{key}: expected a key or group of the configuration, got {key}{fix}"
