"""Composing the configuration, and checks of its top-level values."""

from __future__ import annotations

from omegaconf import DictConfig, ListConfig, OmegaConf

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import choice, real, switch, whole
from soft_reasoning.configuration.conf_dir import composed, known_keys
from soft_reasoning.configuration.errors import one_line, unknown_key
from soft_reasoning.configuration.implied import complete
from soft_reasoning.configuration.overrides import Override, Overrides
from soft_reasoning.configuration.own_prompt import prompt_settings
from soft_reasoning.types import UserError

BUDGETS = ("own", "equal")
"""Budget of each method of a comparison: its configured budget, or the reference's tokens."""


def compose_config(overrides: Overrides = ()) -> DictConfig:
    """Compose the configuration under ``overrides`` and those that follow from them, outside a command line.

    Raises:
        UserError: For a choice or key that does not exist, as ``implied.complete``, and as :func:`check`.
    """
    try:
        config = composed(complete(overrides))
        check(config)
    except Exception as error:
        if (line := one_line(error)) is None or isinstance(error, UserError):
            raise
        raise UserError(line) from error
    return config


def check(config: DictConfig) -> None:
    """Check the top level of a configuration, and read a user's prompt file into it.

    Each part checks its own values when it is built.

    Raises:
        UserError: For an unknown top-level key, a wrong top-level value, or a prompt for answers of a type
            other than the data set's.
    """
    known = known_keys()
    for key in config:
        if key not in known:
            raise UserError(unknown_key(str(key), "", known))
    for key in ("fresh", "progress"):
        switch(key, config[key])
    whole("seed", config.seed, least=0)
    for key in ("max_new_tokens", "max_live"):
        whole(key, config[key], least=1)
    choice("budget", config.budget, BUDGETS)
    if not isinstance(config.cache, str | None) or config.cache == "":
        raise UserError(f"cache: expected run, none or a folder, got {config.cache!r}")
    real("cache_gb", config.cache_gb, above=0.0)
    if (path := OmegaConf.select(config, "prompt.path")) is not None:
        overridden = {key: value for key, value in config.prompt.items() if value is not None}
        config.prompt = prompt_settings(path) | overridden
    answer_type = OmegaConf.select(config, "dataset.answer_type")
    if answer_type is not None:
        check_prompt(config, "dataset.answer_type", answer_type)
    parts = OmegaConf.to_container(config.method, resolve=False)
    if isinstance(parts, dict) and "optimiser" in parts and "optimiser" not in config.search:
        raise UserError(
            f"search: expected a search with points for method={config.method.name}, got none; "
            "use search=bayesian or random, or method=verified_sampling"
        )
    compared = compared_methods(config)
    if config.budget == "equal" and not compared:
        raise UserError("budget=equal: expected methods=[...] to compare, got none")


def prompt_for(answer_type: str) -> str:
    """Return the choice of the group ``prompt`` for a type of answer."""
    return {"number": "math", "open": "any"}.get(answer_type, answer_type)


def check_prompt(config: DictConfig, name: str, answer_type: str) -> None:
    """Check that the prompt asks for answers of ``answer_type``, the value of the option ``name``.

    A custom prompt that names no type is accepted for every type.

    Raises:
        UserError: If the prompt asks for answers of another type.
    """
    choice(name, answer_type, ANSWER_TYPES)
    prompted = OmegaConf.select(config, "prompt.answer_type")
    if prompted not in (None, answer_type):
        raise UserError(
            f"{name}={answer_type}: expected a prompt that asks for such answers, got a prompt for "
            f"{prompted}; use prompt={prompt_for(answer_type)} or {name}={prompted}"
        )


def compared_methods(config: DictConfig) -> dict[str, list[Override]]:
    """Return the overrides of each entry of ``config.methods`` by its label, in order; empty if it is null.

    The first override is the method. Null entries are left out (``${when:${dataset.shots},rap}`` is null
    without exemplars). Under ``budget=equal`` labels leave out the number of samples; of methods that differ
    only in that number the first is used.

    Raises:
        UserError: Unless it is a list of names, or of lists of a name and overrides, without repetition.
    """
    if config.methods is None:
        return {}
    expected = "methods: expected a list such as [cot,[self_consistency,'method.samples=20']]"
    if not isinstance(config.methods, ListConfig) or not config.methods:
        raise UserError(f"{expected}, got {config.methods}")
    compared: dict[str, list[Override]] = {}
    for entry in (entry for entry in config.methods if entry is not None):
        name, *words = list(entry) if isinstance(entry, ListConfig) and entry else [entry]
        if not isinstance(name, str) or not all(isinstance(word, str) and "=" in word for word in words):
            raise UserError(f"{expected}, got {entry} in it")
        changes = [Override.parse(str(word)) for word in words]
        if any(change.key in ("limit", "seed") or change.root == "dataset" for change in changes):
            raise UserError(f"methods: expected one seed and data set for all, got {entry} in the list")
        overrides = [Override("method", name), *changes]
        if overrides in compared.values():
            method = " ".join([name, *map(str, changes)])
            raise UserError(f"methods: expected each method once, got {method} twice; remove one")
        hidden = "method.samples" if config.budget == "equal" else None
        label = " ".join([name, *(str(change) for change in changes if change.key != hidden)])
        compared.setdefault(label, overrides)
    return compared
