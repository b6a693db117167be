"""Composing the configuration: implied overrides, and checks of top-level values."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, ListConfig, OmegaConf

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import choice, switch, whole
from soft_reasoning.configuration.errors import one_line, unknown_key
from soft_reasoning.configuration.folder import choices, conf_dir, known_keys, register_resolvers
from soft_reasoning.data.demo import FOLDER
from soft_reasoning.prompts import DATE, Wording
from soft_reasoning.types import UserError

_COMPOSING = threading.Lock()
"""Hydra's state is global."""

BUDGETS = ("own", "equal")
"""Budget of each method of a comparison: its configured budget, or the reference's tokens."""

PRESET_METHODS = ("soft_reasoning", "random_embedding")
"""Methods whose parts a preset chooses."""

KEYS = {
    "k": ("search.candidates", "method.samples", "method.paths", "method.candidates"),
    "rounds": ("search.rounds",),
    "temperature": ("method.temperature",),
}
"""Options whose key depends on the method: the first that the configuration has."""

SETTINGS: dict[str, Any] = {
    "answer_type": None, "layout": "auto", "system": None, "date": DATE, "chat_options": {},
}  # fmt: skip
"""Settings of a prompt besides its wording, with their defaults."""

PromptLike: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Wording
"""The name of a shipped prompt, a file, a mapping or an object."""


def compose_config(overrides: Sequence[str] = ()) -> DictConfig:
    """Compose the configuration under ``overrides``, outside a command line.

    Raises:
        UserError: For a choice or key that does not exist, and as :func:`check`.
    """
    overrides = complete_overrides(overrides)
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
        if (line := one_line(error)) is None:
            raise
        raise UserError(line) from error
    return config


NEUTRAL = ("any", "json", "code")
"""Prompts without wording, in which a solution may be as long as the model makes it."""


def complete_overrides(overrides: Sequence[str]) -> list[str]:
    """Return ``overrides`` and those that follow from them.

    ``model=A/NAME`` becomes a model's path, ``prompt=FILE`` the choice ``file``, and ``preset=FILE`` the
    overrides in the file. Models other than the bundled one get neither its sigma nor its prompt.
    ``preset=default`` is added if the chosen method has no presets and none is named: an experiment may name
    a preset for Soft Reasoning, which other methods do not have.
    """
    result: list[str] = []
    for word in _with_presets(overrides):
        key, _, value = word.partition("=")
        if key == "prompt" and is_file_name(value):
            result += ["prompt=file", override("prompt.path", str(Path(value).expanduser().absolute()))]
        elif key == "model" and is_path(value):
            result += model_overrides(value)
        else:
            result.append(word)
    pairs = (word.lstrip("+").partition("=") for word in result)
    chosen = {key: value for key, _, value in pairs}
    path = chosen.get("model.path", "demo").strip("'\"")
    bundled = chosen.get("model", "demo") == "demo" and is_bundled(path)
    if not bundled and not {"model", "experiment"} & {*chosen}:  # the bundled model's sigma suits no other
        result.insert(0, f"model={path if path in choices('model') else '_base'}")
    prompted = {"prompt", "experiment"} & {*chosen} or chosen.get("dataset", "demo") != "demo"
    if not bundled and not prompted and chosen.get("engine", "hf") != "fake":
        result.append("prompt=math")
    if chosen.get("prompt") in NEUTRAL and "max_new_tokens" in chosen:
        result.append("prompt.max_new_tokens=null")
    method = chosen.get("method", "soft_reasoning")
    if "preset" not in chosen and method in choices("method") and method not in PRESET_METHODS:
        result.append("preset=default")
    return result


def _with_presets(overrides: Sequence[str]) -> Iterator[str]:
    """Yield ``overrides`` with ``preset=FILE`` replaced by the overrides in the file.

    Raises:
        UserError: If the file holds no overrides.
    """
    for word in overrides:
        key, _, value = word.partition("=")
        if key != "preset" or not is_file_name(value):
            yield word
            continue
        path = Path(value.strip("'\"")).expanduser()
        preset = OmegaConf.load(path) if path.is_file() else None
        words = preset.get("overrides") if isinstance(preset, DictConfig) else None
        if not isinstance(words, ListConfig):
            raise UserError(f"preset: expected a file that holds overrides, got {value}")
        yield from map(str, words)


def is_path(model: str) -> bool:
    """Whether a value of ``model`` is a folder or a name on the hub instead of a name of conf/model."""
    return "/" in model or model.startswith((".", "~")) or model.lower().endswith(".gguf")


def model_overrides(path: str) -> list[str]:
    """Return the overrides for a model's folder or hub name, or for several with commas, a sweep."""
    if "," in path and all(is_path(part) for part in path.split(",")):
        return ["model=_base", f"model.path={path}"]
    return ["model=_base", override("model.path", path)]


def is_bundled(model: str) -> bool:
    """Whether ``model`` is the name or the folder of the bundled model."""
    model = model.strip("'\"")
    return model == "demo" or Path(model).expanduser().resolve() == (FOLDER / "model").resolve()


def check(config: DictConfig) -> None:
    """Check the top level of a configuration, and read a user's prompt file into it.

    Each part checks its own values when it is built.

    Raises:
        UserError: For an unknown top-level key, a wrong top-level value, or a prompt for answers of another
            type than the data set's.
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


def compared_methods(config: DictConfig) -> dict[str, tuple[str, list[str]]]:
    """Return the entries of ``config.methods``: label -> (method, overrides), in order; empty if it is null.

    Null entries are left out (``${when:${dataset.shots},rap}``: not without exemplars).
    Under ``budget=equal`` labels leave out the number of samples, and of methods that differ only in it the
    first is used.

    Raises:
        UserError: Unless it is a list of names, or of lists of a name and overrides, without repetition.
    """
    if config.methods is None:
        return {}
    expected = "methods: expected a list such as [cot,[self_consistency,'method.samples=20']]"
    if not isinstance(config.methods, ListConfig) or not config.methods:
        raise UserError(f"{expected}, got {config.methods}")
    compared: dict[str, tuple[str, list[str]]] = {}
    for entry in (entry for entry in config.methods if entry is not None):
        words: list[Any] = list(entry) if isinstance(entry, ListConfig) and entry else [entry]
        name, *changes = words
        if not isinstance(name, str) or not all(isinstance(word, str) and "=" in word for word in changes):
            raise UserError(f"{expected}, got {entry} in it")
        if any(word.startswith(("limit=", "seed=", "dataset=", "dataset.")) for word in changes):
            raise UserError(f"methods: expected one seed and data set for all, got {entry} in the list")
        if (name, changes) in compared.values():
            method = " ".join([name, *changes])
            raise UserError(f"methods: expected each method once, got {method} twice; remove one")
        hidden = "method.samples=" if config.budget == "equal" else "\n"
        label = " ".join([name, *(word for word in changes if not word.startswith(hidden))])
        compared.setdefault(label, (name, changes))
    return compared


def expand_options(overrides: Sequence[str]) -> list[str]:
    """Return ``overrides`` with ``k``, ``rounds`` and ``temperature`` as keys of the method.

    Raises:
        UserError: For a method without such a key, and in a comparison.
    """
    values = {key: value for key, _, value in (word.partition("=") for word in overrides)}
    short = {key: value for key, value in values.items() if key in KEYS}
    if not short:
        return list(overrides)
    name, value = next(iter(short.items()))
    if "methods" in values:
        raise UserError(f'{name}: expected it beside a method in quotes, such as "soft_reasoning {name}='
                        f'{value}", got it for a whole comparison')  # fmt: skip
    methods = values.get("method", "soft_reasoning").split(",")
    configs = [compose_config([f"method={method}"]) for method in methods]
    long = [[word for key in short for word in _method_keys(key, short[key], config)] for config in configs]
    if any(words != long[0] for words in long):
        raise UserError(f"{name}: expected methods with the same key for it, got {', '.join(methods)}; sweep "
                        "over one of them at a time")  # fmt: skip
    return [*(word for word in overrides if word.partition("=")[0] not in KEYS), *long[0]]


def _method_keys(name: str, value: str, config: DictConfig) -> list[str]:
    """The overrides that set ``name``, one of ``KEYS``, for the method of ``config``."""
    if name == "temperature":
        greedy = value in ("0", "0.0")
        if "decoding" in config:
            return ["decoding=greedy"] if greedy else ["decoding=sampled", f"decoding.temperature={value}"]
        if greedy and "temperature" not in config.method and "verifier" not in config:
            return []  # greedy in any case
    key = next((key for key in KEYS[name] if OmegaConf.select(config, key) is not None), None)
    if key is None:
        raise lacking(name, config.method.name)
    return [f"{key}={value}"]


def lacking(name: str, method: str) -> UserError:
    """Return the error for an option that the method does not have."""
    return UserError(f"{name}: expected a method that has it, got method={method}; leave {name} out")


def override(key: str, value: Any) -> str:
    """Return ``key=value`` in Hydra's grammar, with quotes around text."""
    if isinstance(value, str):
        value = QuotedString(value, Quote.single).with_quotes()
    return f"{key}={'null' if value is None else value}"


def is_file_name(name: str) -> bool:
    """Whether ``name`` names a file rather than a shipped prompt."""
    return name.endswith((".yaml", ".yml"))


def prompt_settings(prompt: PromptLike) -> dict[str, Any]:
    """Return the configuration of the group ``prompt``; its keys are checked when it is built.

    Raises:
        UserError: For a file that cannot be read, and for content that is no mapping.
    """
    content: Any = asdict(prompt) if isinstance(prompt, Wording) else prompt
    if isinstance(prompt, str | os.PathLike):
        try:
            content = yaml.safe_load(Path(prompt).expanduser().read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise UserError(
                f"prompt={prompt}: expected a YAML file or the name of a shipped prompt, got {error!s:.200}"
            ) from error
    wording = _with_target("Wording", "prompt", content)
    settings = {key: wording.pop(key, default) for key, default in SETTINGS.items()}
    for key, kind in (("reviews", "ReviewWording"), ("tasks", "TaskWording")):
        if not isinstance(entries := wording.get(key) or {}, Mapping):
            raise UserError(f"prompt.{key}: expected names with a wording each, got {entries!r:.80}")
        wording[key] = {
            str(name): _with_target(kind, f"prompt.{key}.{name}", entry) for name, entry in entries.items()
        }
    return {**settings, "wording": wording}


def _with_target(kind: str, where: str, content: Any) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise UserError(f"{where}: expected keys such as ask, got {content!r:.80}")
    return {"_target_": f"soft_reasoning.prompts.{kind}", **content}
