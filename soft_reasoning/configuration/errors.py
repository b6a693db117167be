"""A user's errors in one line: the expected value, the actual value, and the fix."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from soft_reasoning.configuration.folder import known_keys
from soft_reasoning.types import UserError


def one_line(error: BaseException) -> str | None:
    """Return the line for an error of the user, whatever raised it; None for an error of this package.

    Hydra wraps the exceptions of constructors, so a cause may hold the line. Hydra's messages about overrides
    are replaced, since they recommend adding keys that nothing would read.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    text = " ".join(str(error).split())
    match error:
        case OverrideParseException():
            return (
                f"{error.override}: expected key=value, got something else; put values with =, commas or "
                "brackets into quotes"
            )
        case MissingConfigException(missing_cfg_file=str(file)) if file:
            group, _, name = file.rpartition("/")
            choices = ", ".join(choice for choice in error.options or () if not choice.startswith("_"))
            return f"{group}: expected one of {choices or 'none'}, got {name}"
        case HydraException() if refused := re.search(r"Could not override '([^']+)'", text):
            return _refused_override(refused[1], error.__cause__)
        case OmegaConfBaseException():
            return f"{error.full_key}: {str(error).splitlines()[0]}"
        case HydraException():
            return text
        case ValueError() if _is_raised_by("hydra", error):  # such as a group set to a number
            return text
    return None


def _is_raised_by(package: str, error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and package in Path(frames[-1].filename).parts


def _refused_override(key: str, cause: BaseException | None) -> str:
    """The message for an override whose key or group does not exist."""
    if key == "experiment":
        return "experiment: expected +experiment=NAME, got it without the +"
    if isinstance(cause, OmegaConfBaseException) and cause.parent_node is not None:
        if where := cause.parent_node._get_full_key(""):
            return unknown_key(str(cause.key), where, cause.parent_node)
    root = re.split(r"[.@/]", key)[0]
    if root in known_keys():
        return (
            f"{key}: expected a group that the chosen method uses, got {root}, which it does not; "
            "leave it out, or choose another method"
        )
    return unknown_key(root, "", known_keys())


def unknown_key(key: str, where: str, known: Iterable[Any]) -> str:
    """Return the message for a ``key`` that is not among the ``known`` keys of ``where`` ("" is the top)."""
    names = sorted(str(name) for name in known if not str(name).startswith("_"))
    near = difflib.get_close_matches(key, names, n=1)
    if where:
        fix = f"did you mean {near[0]}?" if near else "leave it out, or add it with + if its class takes it"
        return f"{where}.{key}: expected one of its keys ({', '.join(names) or 'none'}), got {key}; {fix}"
    fix = f"did you mean {near[0]}?" if near else "--help lists the groups, --cfg job the keys"
    return f"{key}: expected a key or group of the configuration, got {key}; {fix}"
