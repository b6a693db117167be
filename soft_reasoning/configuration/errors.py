"""A user's faults in one line: what was expected, what came, and how to fix it."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from soft_reasoning.configuration.folder import known_keys
from soft_reasoning.types import UserError


@contextmanager
def user_errors() -> Iterator[None]:
    """Raise a user's fault as a UserError with its line; other errors stay as they are."""
    try:
        yield
    except Exception as error:
        if (line := one_line(error)) is None:
            raise
        raise UserError(line) from error


def one_line(error: BaseException) -> str | None:
    """Return the line for a fault of the user's, whatever raised it; None for a fault of ours.

    Hydra wraps the exceptions of constructors, so the line may be that of a cause. Its own messages about
    overrides are replaced, since they recommend adding keys that nothing would read.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    frames = traceback.extract_tb(error.__traceback__)
    raised_by = Path(frames[-1].filename).parts if frames else ()
    text = " ".join(str(error).split())
    match error:
        case OverrideParseException():
            lines = [line for line in str(error).splitlines() if not line.startswith(("Error pars", "See h"))]
            text = (
                f"{error.override}: expected key=value ({' '.join(lines)[:200]}); put what holds =, commas, "
            )
            return f"{text}brackets or spaces into quotes"
        case MissingConfigException(missing_cfg_file=str(file)) if file:
            group, _, name = file.rpartition("/")
            choices = ", ".join(choice for choice in error.options or () if not choice.startswith("_"))
            return f"{group}: expected one of {choices or 'none'}, got {name}"
        case HydraException() if refused := re.match(r"(In '.+': )?Could not override '([^']+)'", text):
            return _refused_override(refused[1] or "", refused[2], error.__cause__)
        case OmegaConfBaseException():
            return f"{error.full_key}: {str(error).splitlines()[0]}"
        case HydraException():
            return text
        case ValueError() if "hydra" in raised_by:  # about the command line, such as a group set to a number
            return text
        case _ if "submitit" in raised_by:  # a failed job: its own last line if it has one
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            ours = [line.removeprefix("soft_reasoning: ") for line in lines if "soft_reasoning: " in line]
            return ours[-1] if ours else f"hydra/launcher: {lines[0]}"
    return None


def _refused_override(place: str, key: str, cause: BaseException | None) -> str:
    """The line for an override whose key or group does not exist."""
    if key == "experiment":
        return "experiment: expected +experiment=NAME, got it without the +"
    fault = cause if isinstance(cause, OmegaConfBaseException) else None
    parent = None if fault is None else fault.parent_node
    where = "" if parent is None else parent._get_full_key("")
    root = re.split(r"[.@/]", key)[0]
    if root in known_keys() and not where:
        return (
            f"{place}{key}: expected a group that the chosen method uses, got {root}, which it does not; "
            "leave it out, or choose another method"
        )
    if fault is None or parent is None:
        return unknown_key(key, "", known_keys())
    return unknown_key(str(fault.key), where, parent if where else known_keys())


def unknown_key(key: str, where: str, known: Iterable[Any]) -> str:
    """Say that ``key`` is not among the ``known`` keys of ``where`` ("" is the top); suggest the nearest."""
    names = sorted(str(name) for name in known if not str(name).startswith("_"))
    near = difflib.get_close_matches(key, names, n=1)
    fix = f"did you mean {near[0]}?" if near else "leave it out, or add it with + if its class takes it"
    if where:
        return f"{where}.{key}: expected one of its keys ({', '.join(names) or 'none'}), got {key}; {fix}"
    if not near:
        fix = "--help lists the groups, --cfg job the keys"
    return f"{key}: expected a key or group of the configuration, got {key}; {fix}"
