"""Composing the configuration: conf/, checks of top-level values, names of run folders, error messages."""

from __future__ import annotations

import difflib
import hashlib
import math
import os
import re
import threading
import traceback
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import choice, switch, whole
from soft_reasoning.configuration.prompt_files import is_file_name, prompt_settings
from soft_reasoning.data.demo import FOLDER
from soft_reasoning.evaluation.budget import BUDGETS
from soft_reasoning.types import UserError

_COMPOSING = threading.Lock()
"""Hydra's state is global."""

PRESET_METHODS = ("soft_reasoning", "random_embedding")
"""Methods whose parts a preset chooses."""

SWEEP_VARIABLE = "SOFT_REASONING_SWEEP"
"""Environment variable with the name of a sweep's folder, shared by all jobs of a launcher."""


def conf_dir() -> str:
    """Return conf/ inside an installed wheel, or beside the package in a clone or editable install."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return str(folder)
    raise UserError(
        f"expected the configuration in {package / 'conf'}, found none; install the package again"
    )


def run_name(*parts: str) -> str:
    """Return a folder name for ``parts`` that is always the same; long or unusual ones are hashed."""
    name = "-".join(str(part) for part in parts if part)
    plain = re.sub(r"[^A-Za-z0-9_.=,+-]+", "_", name)
    if plain == name and len(plain) <= 120:
        return plain
    return f"{plain[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def register_resolvers() -> None:
    """Register the resolvers of conf/ with OmegaConf: ``run_name``, ``prompt_file`` and the others."""
    OmegaConf.register_new_resolver("product", lambda *factors: math.prod(factors), replace=True)
    OmegaConf.register_new_resolver("sqrt", math.sqrt, replace=True)
    OmegaConf.register_new_resolver("prompt_file", lambda path, key: prompt_settings(path)[key], replace=True)
    OmegaConf.register_new_resolver("run_name", run_name, replace=True)
    OmegaConf.register_new_resolver("sweep_name", lambda: os.environ.get(SWEEP_VARIABLE, ""), replace=True)


def compose_config(overrides: Sequence[str] = ()) -> DictConfig:
    """Compose the configuration under ``overrides``, outside a command line.

    Raises:
        UserError: For a choice or key that does not exist, and as :func:`check`.
    """
    overrides = completed(overrides)
    try:
        with _COMPOSING:
            register_resolvers()
            if GlobalHydra.instance().is_initialized():
                config = compose("config", overrides=overrides)
            else:
                with initialize_config_dir(version_base="1.3", config_dir=conf_dir()):
                    config = compose("config", overrides=overrides)
            check(config)
    except Exception as error:
        raise UserError(one_line(error)) from error
    return config


def completed(overrides: Sequence[str]) -> list[str]:
    """Return ``overrides`` with what follows from them.

    ``prompt=FILE`` becomes the choice ``file``. Another model than the bundled one does not get the prompt of
    the bundled data, which the bundled model alone understands. ``preset=default`` is added if the chosen
    method has no presets and none is named: an experiment may name a preset for Soft Reasoning; other methods
    run in it without one.
    """
    chosen, found = _choices(overrides), list[str]()
    for one in overrides:
        key, _, value = one.partition("=")
        if key == "prompt" and is_file_name(value):
            found += ["prompt=file", override("prompt.path", str(Path(value).expanduser().absolute()))]
        else:
            found.append(one)
    named = chosen.get("model", "demo") == "demo"
    own = not (named and is_bundled(chosen.get("model.path", "demo").strip("'\"")))
    real = chosen.get("engine", "hf") != "fake"
    if own and real and chosen.get("dataset", "demo") == "demo" and not {"prompt", "experiment"} & {*chosen}:
        found.append("prompt=math")
    path = Path(conf_dir()) / "method" / f"{chosen.get('method', 'soft_reasoning')}.yaml"
    if "preset" not in chosen and path.is_file() and path.stem not in PRESET_METHODS:
        found.append("preset=default")
    return found


def is_bundled(model: str) -> bool:
    """Whether ``model`` is the bundled one, by its name or its folder."""
    return model == "demo" or Path(model).expanduser().resolve() == (FOLDER / "model").resolve()


def replaced_parts(overrides: Sequence[str], preset: str) -> list[str]:
    """Return a line for each group choice of the command line that replaces one of the preset's."""
    of_preset = _parts_of(preset)
    chosen = _choices(overrides)
    return [
        f"{group}={chosen[group]} replaces {group}={value} of preset={preset}"
        for group, value in of_preset.items()
        if chosen.get(group, value) != value
    ]


def _choices(overrides: Sequence[str]) -> dict[str, str]:
    """What overrides such as ``group=choice`` set, by key."""
    parts = (one.lstrip("+").partition("=") for one in overrides)
    return {key: value for key, _, value in parts}


def _parts_of(preset: str) -> dict[str, str]:
    """The group choices of a preset, including those of the preset it starts from."""
    path, found = Path(conf_dir()) / "preset" / f"{preset}.yaml", {}
    defaults = OmegaConf.select(OmegaConf.load(path), "defaults") if path.is_file() else None
    for entry in defaults or []:
        if isinstance(entry, str):
            found |= _parts_of(entry)
        else:
            found |= {key.removeprefix("override /"): value for key, value in entry.items()}
    return found


def check(config: DictConfig) -> None:
    """Check the top level of a configuration; each part checks its own values when it is built.

    Raises:
        UserError: For an unknown top-level key, a wrong top-level value, or a prompt whose type of answer
            is not the data set's.
    """
    known = known_keys()
    for key in config:
        if key not in known:
            raise UserError(_unknown(str(key), "", known))
    for key in ("fresh", "progress"):
        switch(key, config[key])
    whole("seed", config.seed, least=0)
    for key in ("max_new_tokens", "max_live"):
        whole(key, config[key], least=1)
    choice("budget", config.budget, BUDGETS)
    OmegaConf.select(config, "prompt.wording")  # reads a file of the user's
    if (given := OmegaConf.select(config, "dataset.answer_type")) is not None:
        check_prompt(config, "dataset.answer_type", given)
    parts = OmegaConf.to_container(config.method, resolve=False)
    if isinstance(parts, dict) and "optimiser" in parts and "optimiser" not in config.search:
        raise UserError(
            f"search: expected one with points for method={config.method.name}, got none; "
            "use search=bayesian, random or sobol, or method=verified_sampling"
        )
    compared = methods_of(config)
    if config.budget == "equal" and not compared:
        raise UserError("budget=equal: expected methods=[...] to compare, got none")


def prompt_for(answer_type: str) -> str:
    """Return the choice of the group ``prompt`` for a type of answer."""
    return "math" if answer_type == "number" else answer_type


def check_prompt(config: DictConfig, name: str, given: str) -> None:
    """Check that the prompt asks for answers of the type ``given``, the value of ``name``.

    A user's own prompt that names no type is accepted for any.

    Raises:
        UserError: If it asks for answers of another type.
    """
    choice(name, given, ANSWER_TYPES)
    asked = OmegaConf.select(config, "prompt.answer_type")
    if asked not in (None, given):
        raise UserError(
            f"{name}={given}: expected a prompt that asks for such answers, got one that asks for {asked}; "
            f"use prompt={prompt_for(given)} or {name}={asked}"
        )


def methods_of(config: DictConfig) -> dict[str, tuple[str, list[str]]]:
    """Return what ``config.methods`` compares: label -> (method, overrides), in order; empty if it is null.

    Under ``budget=equal`` labels do not hold the number of samples, which follows from the budget. Of
    methods that differ only in it the first is kept.

    Raises:
        UserError: Unless it is a list of names, or of lists of a name and overrides, without repetition.
    """
    if config.methods is None:
        return {}
    wanted = "methods: expected a list such as [cot,[self_consistency,'method.samples=20']]"
    if not isinstance(config.methods, ListConfig) or not config.methods:
        raise UserError(f"{wanted}, got {config.methods}")
    found: dict[str, tuple[str, list[str]]] = {}
    for entry in config.methods:
        words: list[Any] = list(entry) if isinstance(entry, ListConfig) and entry else [entry]
        name, *changes = words
        if not isinstance(name, str) or not all(isinstance(one, str) and "=" in one for one in changes):
            raise UserError(f"{wanted}, got {entry} in it")
        if (name, changes) in found.values():
            twice = " ".join([name, *changes])
            raise UserError(f"methods: expected each of them once, got {twice} twice; leave one out")
        hidden = "method.samples=" if config.budget == "equal" else "\n"
        label = " ".join([name, *(one for one in changes if not one.startswith(hidden))])
        found.setdefault(label, (name, changes))
    return found


def override(key: str, value: Any) -> str:
    """Return ``key=value`` in Hydra's grammar, whatever characters a plain value holds."""
    if isinstance(value, str):
        value = QuotedString(value, Quote.single).with_quotes()
    return f"{key}={'null' if value is None else value}"


@cache
def _own_keys() -> frozenset[str]:
    """The groups of conf/, and the top-level keys of its files."""
    conf = Path(conf_dir())
    keys = {path.relative_to(conf).parts[0] for path in conf.glob("*/*.yaml")}
    for path in conf.rglob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        if path.parent == conf or "@package _global_" in text:
            keys |= set(re.findall(r"^(\w+):", text, flags=re.MULTILINE))
    return frozenset(keys - {"defaults", "hydra"})


def known_keys() -> frozenset[str]:
    """Return the keys allowed at the top of a configuration: ours, and the groups of every --config-dir."""
    if not GlobalHydra.instance().is_initialized():
        return _own_keys()
    return _own_keys() | set(GlobalHydra.instance().config_loader().list_groups(""))


def user_error(error: BaseException) -> UserError | None:
    """Return the UserError among ``error`` and its causes, or one made from a launcher's or Hydra's message.

    Hydra wraps exceptions of constructors, so the cause holds the message.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return launcher_fault(error) or hydra_fault(error)


def launcher_fault(error: BaseException) -> UserError | None:
    """Return an error for a failed submitit job: the job's own last line if it has one."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or "submitit" not in Path(frames[-1].filename).parts:
        return None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line.removeprefix("soft_reasoning: ") for line in lines if line.startswith("soft_reasoning: ")]
    if own:
        return UserError(own[-1])
    return UserError(f"hydra/launcher: {lines[0]} On one machine use hydra/launcher=joblib")


def hydra_fault(error: BaseException) -> UserError | None:
    """Return an error for a ValueError of Hydra's about the command line, such as a group set to a number."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, ValueError) and frames and "hydra" in Path(frames[-1].filename).parts:
        return UserError(str(error))
    return None


def one_line(error: BaseException) -> str:
    """Return a configuration error in one line: what was expected, what came, how to fix it."""
    if found := user_error(error):
        return " ".join(str(found).splitlines())
    if said := _not_parsed(error) or _no_such_file(error) or _not_known(error):
        return said
    if isinstance(error, OmegaConfBaseException):
        return f"{error.full_key}: {str(error).splitlines()[0]}"
    return " ".join(str(error).split())


def _not_parsed(error: BaseException) -> str | None:
    """The message for an override that is not in Hydra's grammar."""
    if not isinstance(error, OverrideParseException):
        return None
    lines = [line for line in str(error).splitlines() if not line.startswith(("Error parsing", "See https:"))]
    return (
        f"{error.override}: expected key=value ({' '.join(lines)[:200]}); put what holds =, commas, brackets "
        "or spaces into quotes"
    )


def _no_such_file(error: BaseException) -> str | None:
    """The message for a group without such a choice."""
    if not isinstance(error, MissingConfigException) or not error.missing_cfg_file:
        return None
    group, _, name = error.missing_cfg_file.rpartition("/")
    fix = (
        "; pip install 'soft-reasoning[launchers]' brings joblib and submitit"
        if group == "hydra/launcher"
        else ""
    )
    choices = ", ".join(one for one in error.options or () if not one.startswith("_"))
    return f"{group}: expected one of {choices or 'none'}, got {name}{fix}"


def _not_known(error: BaseException) -> str | None:
    """The message for an override whose key or group does not exist.

    Hydra recommends adding such a key, but nothing would read it.
    """
    said = re.match(
        r"(In '.+': )?Could not override '([^']+)'", str(error)
    )  # nothing but its text has the key
    if not said:
        return None
    place, key, cause = said[1] or "", said[2], error.__cause__
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
        return _unknown(key, "", known_keys())
    return _unknown(str(fault.key), where, parent if where else known_keys())


def _unknown(key: str, where: str, known: Iterable[Any]) -> str:
    """Say that ``key`` is not among the ``known`` keys of ``where`` ("" is the top); suggest the nearest."""
    names = sorted(str(one) for one in known if not str(one).startswith("_"))
    near = difflib.get_close_matches(key, names, n=1)
    fix = f"did you mean {near[0]}?" if near else "leave it out, or add it with + if its class takes it"
    if where:
        return f"{where}.{key}: expected one of its keys ({', '.join(names) or 'none'}), got {key}; {fix}"
    if not near:
        fix = "--help lists the groups, --cfg job the keys"
    return f"{key}: expected a key or group of the configuration, got {key}; {fix}"
