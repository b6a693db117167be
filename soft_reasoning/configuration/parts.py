"""Objects from names: ``Setting().build("method", "cot")``, and Soft Reasoning under a preset.

A choice is first plain data, a class's dotted name under ``_target_`` with its options (:func:`node`), as in
the configuration of a command line. :func:`make` turns such data into objects, wherever they come from.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, partial
from pkgutil import resolve_name
from typing import Any, cast

from soft_reasoning.checks import OptionError, choice
from soft_reasoning.configuration.data import models
from soft_reasoning.configuration.registry import DEFAULTS, GROUPS, PARTS, PRESET_TOKENS, PRESETS, Part
from soft_reasoning.method.soft_reasoning import SoftReasoning
from soft_reasoning.types import MAX_NEW_TOKENS

FIELDS = {"optimiser": "search"}
"""Fields of classes that are named otherwise than their group."""
NEEDED = {
    **{"batch": "choose", "candidate_points": "draw", "decoding": "temperature", "embedding": "bind"},
    **{"engine": "step", "final": "choose", "grader": "extract", "launcher": "solve", "method": "solve"},
    **{"optimiser": "propose", "programs": "write", "reward": "coherence_of", "search": "propose"},
    **{"stopping": "reason", "surrogate": "model", "tune": "max_new_tokens", "verifier": "verify"},
}
"""What the objects of a group must have."""
RESERVED = ("_target_", "_partial_", "_convert_")

Defaults = Callable[..., Mapping[str, Any]]
Lookup = Callable[[str], Any]
"""Returns what stands at a key: a group's choice, or a value of the model (``model.sigma``)."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the defaults of parts depend on.

    Attributes:
        model: The model's values: ``sigma``, ``temperature`` and those of loading.
        choices: The name of each group's choice, where it differs from the default.
        max_new_tokens: Tokens per completion.
    """

    model: Mapping[str, Any] = field(default_factory=lambda: models()["custom"])
    choices: Mapping[str, str] = field(default_factory=dict[str, str])
    max_new_tokens: int = MAX_NEW_TOKENS

    def build(self, group: str, name: str | None = None, **options: Any) -> Any:
        """Return the choice ``name`` of ``group`` (None: this setting's), with the ``options``.

        Raises:
            UserError: For an unknown name, and for a value that a class rejects.
        """
        key = "" if group == "method" else group  # a method's options are named without it
        return limited(make({**self.node(group, name), **options}, key), self.max_new_tokens)

    def node(self, group: str, name: str | None = None) -> dict[str, Any]:
        """Return a choice as plain data, with the choices of other groups inside it."""
        name = name or self.choices.get(group) or DEFAULTS[group]
        chosen = GROUPS[group][choice(group, name, [*GROUPS[group]])]
        return node(chosen, replace(self, choices={**self.choices, **chosen.chooses}).lookup)

    def lookup(self, key: str) -> Any:
        """Return the value at ``key``, as a :data:`Lookup`."""
        return self.node(key) if key in GROUPS else self.model[key.removeprefix("model.")]

    def preset(self, name: str) -> SoftReasoning:
        """Return Soft Reasoning with the parts of a preset."""
        chosen = PRESETS[choice("preset", name, [*PRESETS])]
        tokens = min(PRESET_TOKENS, self.max_new_tokens) if chosen else self.max_new_tokens
        setting = replace(self, choices={**self.choices, **chosen}, max_new_tokens=tokens)
        return setting.build("method", "soft_reasoning")


def paper() -> SoftReasoning:
    """Soft Reasoning as the paper's text states it, with its evident errors corrected."""
    return Setting().preset("paper")


def paper_literal() -> SoftReasoning:
    """As :func:`paper`, with the formulas as they are printed."""
    return Setting().preset("paper_literal")


def released() -> SoftReasoning:
    """Soft Reasoning as the paper's public code runs it; ``grader="released"`` belongs to it."""
    return Setting().preset("released")


def node(chosen: Part, lookup: Lookup, defaults: Defaults | None = None) -> dict[str, Any]:
    """Return a choice as plain data: its class, its values, and its groups' choices.

    Args:
        chosen: The choice.
        lookup: Returns the data of another group's choice, and values to which options refer.
        defaults: Returns the options of a class with their defaults, which are then in the data, too.
    """

    def value_of(value: Any) -> Any:
        if isinstance(value, Part):
            return node(value, lookup, defaults)
        refers = isinstance(value, str) and value.startswith("${")
        return lookup(value[2:-1]) if refers else value

    target, data = chosen.target, dict[str, Any]()
    if not isinstance(target, str):
        groups = {name: FIELDS.get(name, name) for name in parameters(target)}
        data = {name: lookup(group) for name, group in groups.items() if group in PARTS}
        target = f"{target.__module__}.{target.__qualname__}"
    data |= {name: value_of(value) for name, value in chosen.values.items()}
    if defaults is not None and not isinstance(chosen.target, str) and not chosen.partial:
        data = {**defaults(chosen.target, *sorted(data)), **data}
    return {"_target_": target, **data, **({"_partial_": True} if chosen.partial else {})}


def make(data: Any, key: str = "") -> Any:
    """Return ``data`` with an object in place of each mapping that names its class under ``_target_``.

    Args:
        data: Plain data.
        key: The key at which it stands.

    Raises:
        OptionError: With the full key of the option, for a class that cannot be imported, options that it
            does not take, a value that it rejects, and what is no part where one is needed.
    """
    part = data
    if isinstance(data, Mapping):
        part = {
            name: make(value, f"{key}.{name}".lstrip("."))
            for name, value in cast(Mapping[str, Any], data).items()
            if name not in RESERVED
        }
        if "_target_" in data:
            target, later = imported(data["_target_"], key), bool(data.get("_partial_"))
            _check_options(target, part, key, later)
            try:
                part = partial(target, **part) if later else target(**part)
            except OptionError as error:
                raise type(error)(f"{key}.{error.name}".lstrip("."), error.message) from error
    elif isinstance(data, Sequence) and not isinstance(data, str | bytes):
        part = [make(value, key) for value in cast(Sequence[Any], data)]
    check_part(part, key)
    return part


def check_part(part: object, key: str) -> None:
    """Raise an OptionError for what cannot be the part at ``key``."""
    if not hasattr(part, wanted := NEEDED.get(key.rpartition(".")[2], "__class__")):
        raise OptionError(key, f"expected an object with {wanted}, got {part!r:.60}")


def imported(name: object, key: str) -> Callable[..., Any]:
    """Return a class by its dotted name; ``key`` is where the name stands."""
    if callable(name):
        return name
    try:
        target = resolve_name(str(name))
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(key, f"expected the name of a class, got {name} ({error})") from error
    if not callable(target):
        raise OptionError(key, f"expected a class or a function, got {name}")
    return target


def _check_options(target: Callable[..., Any], values: Mapping[str, Any], key: str, later: bool) -> None:
    """Reject options that a class does not take, and the lack of one that it needs."""
    known = parameters(target)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    for name in values:
        if name not in known and not takes_any:
            message = f"expected an option of {target.__qualname__} ({', '.join(known)}), got {name}"
            raise OptionError(f"{key}.{name}".lstrip("."), message + near(name, known))
    for name, parameter in {} if later else known.items():
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if named and parameter.default is parameter.empty and name not in values:
            raise OptionError(f"{key}.{name}".lstrip("."), "expected a value, got none; add it")


@cache
def parameters(target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the options that a class or a function takes."""
    try:
        return inspect.signature(target).parameters
    except ValueError:  # of C
        return inspect.signature(lambda **options: None).parameters


def near(name: str, names: Iterable[str]) -> str:
    """Return the end of a message that suggests the name most like ``name``; empty if none is similar."""
    close = difflib.get_close_matches(name, [*names], n=1)
    return f"; did you mean {close[0]}?" if close else ""


def limited(part: Any, tokens: int) -> Any:
    """Return ``part`` with the limit ``tokens`` of its completions, and of those of the parts inside."""
    if not is_dataclass(part) or isinstance(part, type):
        return part
    values = {field.name: getattr(part, field.name) for field in fields(part) if field.init}
    changes = {
        name: tokens if name == "max_new_tokens" else limited(value, tokens) for name, value in values.items()
    }
    changes = {name: value for name, value in changes.items() if value is not values[name]}
    return replace(cast(Any, part), **changes) if changes else part
