"""Building the parts of a configuration, in which ``_target_`` names a class or function.

The keys are those of ``hydra.utils.instantiate``. Here an error names the option's full key.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from soft_reasoning.checks import OptionError
from soft_reasoning.configuration.errors import one_line
from soft_reasoning.configuration.keys import origin, unresolved
from soft_reasoning.types import UserError


def built(config: DictConfig, key: str, **options: Any) -> Any:
    """Build the part at ``key`` of ``config``, and the parts inside it first.

    ``_target_`` is the dotted name of a class or function, ``_partial_`` binds its arguments without a call,
    and ``_args_`` are positional arguments.

    Args:
        config: The configuration.
        key: The part's key.
        options: Arguments that replace those of the configuration.

    Raises:
        UserError: In one line with the option's full key, for a name that cannot be imported, for arguments
            that it does not take, and for a value that it rejects.
    """
    try:
        part = OmegaConf.to_container(OmegaConf.select(config, key), resolve=True, throw_on_missing=True)
    except Exception as error:
        if (line := one_line(error)) is None:
            raise
        raise UserError(line) from error
    return _build(cast(dict[str, Any], part) | options, key, unresolved(config))


def _build(part: Any, key: str, data: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_build(value, f"{key}.{i}", data) for i, value in enumerate(cast(list[Any], part))]
    if not isinstance(part, dict):
        return part
    values = cast(dict[str, Any], part)
    target = find_target(values, key) if isinstance(values.get("_target_"), str) else None
    values = {name: _build(value, f"{key}.{name}", data) for name, value in values.items()}
    if target is None:
        return values
    arguments = values.pop("_args_", ())
    named = {name: value for name, value in values.items() if name not in RESERVED}
    try:
        call = partial(target, *arguments, **named)
        return call if values.get("_partial_") else call()
    except OptionError as error:
        raise type(error)(origin(data, find_option(part, key, error.name)), error.message) from error
    except UserError:
        raise
    except Exception as error:  # a user's class may raise any error
        line = f"expected values that {values['_target_']} takes, got {type(error).__name__}: {error!s:.300}"
        raise UserError(f"{key}: {line}") from error


def find_option(part: Mapping[str, Any], key: str, name: str) -> str:
    """Return the key of the option ``name`` of a part, or of a part inside that it passes options on to."""
    for place, values in _inside(part, key):
        if name.partition(".")[0] in values:
            return f"{place}.{name}"
    return f"{key}.{name}"


def _inside(part: Mapping[str, Any], key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield ``part`` and the parts inside it, each with its key."""
    yield key, part
    for name, value in part.items():
        if isinstance(value, Mapping):
            yield from _inside(cast(Mapping[str, Any], value), f"{key}.{name}")


RESERVED = ("_target_", "_partial_", "_args_", "_convert_", "_recursive_")
"""Keys of Hydra that are not arguments."""


def find_target(values: Mapping[str, Any], key: str) -> Callable[..., Any]:
    """Return the class or function that ``_target_`` names, after a check that it takes the keys beside it.

    Raises:
        UserError: For a name that cannot be imported, or other arguments.
    """
    name = values["_target_"]
    arguments = [argument for argument in values if argument not in RESERVED]
    try:
        target = pkgutil.resolve_name(name)
        signature = inspect.signature(target)
        bind = signature.bind_partial if {"_partial_", "_args_"} & {*values} else signature.bind
        bind(**dict.fromkeys(arguments))
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise UserError(
            f"{key}: expected a class or function and its arguments, got {name} ({error})"
        ) from error
    return cast(Callable[..., Any], target)
