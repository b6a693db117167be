"""Composing a configuration with Hydra: data of ``conf/``, registered choices, and a command's options."""

from __future__ import annotations

import hashlib
import math
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import choice, local_path, real, switch, whole
from soft_reasoning.configuration.choices import PARTS, SHORT, conf_dir, known_keys, register
from soft_reasoning.configuration.errors import NoSuchOption, one_line, unknown_key
from soft_reasoning.prompts import DATE, Wording
from soft_reasoning.types import UserError

BASES = {"model": "custom", "dataset": "custom", "prompt": "file"}
"""The choices with which a path of each group stands."""
BUDGETS = ("own", "equal")
"""Budget of each method of a comparison: its configured budget, or the reference's tokens."""

_COMPOSING = threading.Lock()
"""Hydra's state is global."""
_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?([A-Za-z_]\w*)")
"""The first part of a key that a value refers to."""
_WORDS = re.compile(r",(?=[~+@/\w.]+=)")
"""The comma between two overrides."""
_VALUE = re.compile(r"[^,\[\]]*[^\w/+.%*@?| \t,\[\]-][^,\[\]]*", re.ASCII)
"""A value, or one of several, with a character that Hydra's grammar takes in quotes only."""
_GRAMMAR = re.compile(r"[\\'\"=:$(){}]")
"""What else has a meaning in a value: it is left as it is."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ELEMENT = re.compile(r"""(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\$\{[^}]*\}|[^,])+""")
"""A value, or one of several with commas between them."""
_FOLDERS = re.compile(r"(?<==).*/(?=[^/])")
"""All components of a path but the last."""


def compose_config(words: Sequence[str] = ()) -> DictConfig:
    """Compose the configuration under ``words``, the options of a command line.

    Raises:
        UserError: In one line, for a choice or key that does not exist, and as :func:`settle`.
    """
    return compose_choices(words)[0]


def compose_choices(words: Sequence[str] = ()) -> tuple[DictConfig, dict[str, str]]:
    """Return what :func:`compose_config` does, and the name of each group's choice."""
    try:
        words = read_words(words)
        with _COMPOSING:
            prepare()
            if GlobalHydra.instance().is_initialized():
                config = compose("config", overrides=words, return_hydra_config=True)
            else:
                with initialize_config_dir(version_base="1.3", config_dir=conf_dir()):
                    config = compose("config", overrides=words, return_hydra_config=True)
        chosen = chosen_names(config.hydra.runtime.choices)
        with open_dict(config):
            del config["hydra"]
        settle(config, words)
    except Exception as error:
        if isinstance(error, UserError) or (line := one_line(error)) is None:
            raise
        raise UserError(line) from error
    return config, chosen


def chosen_names(choices: Mapping[Any, Any]) -> dict[str, str]:
    """Return the choices of a composed configuration by their group, without Hydra's own."""
    return {str(group): str(name) for group, name in choices.items() if not str(group).startswith("hydra/")}


def prepare() -> None:
    """Register the choices with Hydra, and the resolvers of conf/ with OmegaConf."""
    register()
    OmegaConf.register_new_resolver("product", lambda *factors: math.prod(factors), replace=True)
    OmegaConf.register_new_resolver("sqrt", math.sqrt, replace=True)
    OmegaConf.register_new_resolver("when", lambda holds, value: value if holds else None, replace=True)
    OmegaConf.register_new_resolver("run_name", run_name, replace=True)


def read_words(words: Iterable[str]) -> list[str]:
    """Return the options with ``model=``, ``dataset=`` and ``prompt=`` that name files as Hydra reads them.

    ``model=A/NAME`` becomes ``model=custom model.path=A/NAME``, ``dataset=FILE.csv`` ``dataset=custom`` with
    its path, and ``prompt=FILE.yaml`` ``prompt=file`` with its path. Each may be several for a sweep.
    ``model.path=`` alone names a model, too: without an experiment the path is not that of the default model.
    Values with letters or marks that Hydra's grammar lacks, such as é or ~, are put into quotes. The options
    of a class that is typed by ``_target_`` are its own: ``acquisition.xi=1`` becomes ``++acquisition.xi=1``.

    Raises:
        UserError: For a deletion (``~seed``), which leaves a key without a value, for bytes that are no
            UTF-8, and for a sweep over names and paths.
    """
    words, read = [_quote_value(word) for word in words], list[str]()
    for word in words:
        if word.startswith("~"):
            raise UserError(f"{word}: expected key=value, got a deletion; give the key another value instead")
        if _SURROGATE.search(word):
            raise UserError(f"{word}: expected text in UTF-8, got other bytes")
    if "model.path" in (keys := typed_keys(words)) and not {"model", "experiment"} & {*keys}:
        path = words[keys.index("model.path")].partition("=")[2]
        read.append(f"model={path if path in choices('model') else 'custom'}")
    own = tuple(key.removesuffix("_target_") for key in typed_keys(words) if key.endswith("._target_"))
    for word in words:
        group, _, value = word.partition("=")
        if any(paths := _paths(word)):
            if not all(paths):
                raise UserError(f"{group}: expected names or paths, got both in {value}; run two sweeps")
            if group == "prompt":
                files = [local_path("prompt", text.strip("'\"")) for text in _ELEMENT.findall(value)]
                value = ",".join(quoted(file.absolute()) for file in files)
            read += [f"{group}={BASES[group]}", f"{group}.path={value}"]
        else:
            read.append(f"++{word}" if own and word.startswith(own) else word)
    return read


def as_typed(words: Iterable[str]) -> list[str]:
    """Return the shortest options that :func:`read_words` turns into ``words``, for people to read."""
    typed, dropped, words = list[str](), set[str](), list(words)
    bases = {
        f"{group}.path": f"{group}={base}" for group, base in BASES.items() if f"{group}={base}" in words
    }
    for word in words:
        key, _, value = word.partition("=")
        text = value.strip("'") if re.fullmatch(r"'[^',\\]*'", value) else value
        short = f"{key.removesuffix('.path')}={text}"
        if key in bases and (paths := _paths(short)) and all(paths):
            typed.append(short)
            dropped.add(bases[key])
        else:
            typed.append(f"{key}={text}" if _quote_value(f"{key}={text}") == word else word)
    return [word for word in typed if word not in dropped]


def _quote_value(word: str) -> str:
    """Return the option with quotes around what Hydra's grammar would refuse without them."""
    key, equals, value = word.partition("=")
    if not equals or _GRAMMAR.search(value):
        return word
    return key + equals + _VALUE.sub(lambda part: quoted(part[0]), value)


def _paths(word: str) -> list[bool]:
    """For each value of the word, whether it is a path where a choice of the word's group may stand."""
    group, _, value = word.partition("=")
    texts = [text.strip("'\"") for text in _ELEMENT.findall(value)]
    if group == "dataset":
        return [bool(Path(text).suffix) for text in texts]
    return [{"model": is_path, "prompt": is_file_name}[group](text) for text in texts if group in BASES]


def is_path(model: str) -> bool:
    """Whether a value of ``model`` is a folder or a name on the hub instead of a name of conf/model."""
    return "/" in model or model.startswith((".", "~")) or model.lower().endswith(".gguf")


def is_file_name(name: str) -> bool:
    """Whether ``name`` names a file rather than a shipped prompt."""
    return name.endswith((".yaml", ".yml"))


def quoted(value: object) -> str:
    """Return a value as it stands in a word of Hydra's grammar; text is quoted."""
    if isinstance(value, str | PathLike):
        return QuotedString(str(value), Quote.single).with_quotes()
    return "null" if value is None else str(value)


def typed_keys(words: Iterable[str]) -> list[str]:
    """Return the keys of options, such as ``verifier.samples`` of ``+verifier.samples=3``."""
    return [word.lstrip("+~").partition("=")[0] for word in words]


def settle(config: DictConfig, words: Sequence[str]) -> None:
    """Check the top level of a composed configuration, and leave out the parts that the method does not read.

    Each part checks its own values when it is built. A class that is typed by ``_target_`` replaces a choice
    with all its options, and a user's prompt file is read.

    Args:
        config: The configuration, which is changed.
        words: The options that it was composed with.

    Raises:
        UserError: For an unknown key or a wrong value at the top, an option that the method does not read, or
            a prompt for answers of a type other than the data set's.
    """
    known = known_keys()
    for key in config:
        if key not in known:
            raise UserError(unknown_key(str(key), "", known))
    keys = typed_keys(words)
    for group in PARTS:
        if f"{group}._target_" in keys and group not in keys:
            typed = {key.split(".")[1] for key in keys if key.startswith(f"{group}.")}
            kept = {name: value for name, value in config[group].items() if name in {*typed, "_partial_"}}
            config[group] = kept
    read = _read_parts(config)
    if "preset" in keys and "preset=default" not in words and "embedding" not in read:
        keys.append("embedding")  # what a preset chooses
    for key in keys:
        if (root := re.split(r"[.@/]", key)[0]) in (*PARTS, *SHORT) and root not in read:
            method = config.method.get("name", config.method.get("_target_"))
            raise NoSuchOption(
                key, f"expected a method that reads it, got method={method}, which does not; leave {key} out"
            )
    with open_dict(config):
        for key in {*PARTS, *SHORT} - read:
            config.pop(key, None)
    _check_values(config)
    if (path := OmegaConf.select(config, "prompt.path")) is not None:
        overridden = {key: value for key, value in config.prompt.items() if value is not None}
        config.prompt = prompt_settings(path) | overridden
    if "max_new_tokens" in keys and config.prompt.get("max_new_tokens") == "model":
        OmegaConf.update(config, "prompt.max_new_tokens", None)  # the limit that was typed holds
    if (answer_type := OmegaConf.select(config, "dataset.answer_type")) is not None:
        fit_prompt(config, "dataset.answer_type", answer_type, words)
    if config.budget == "equal":
        if not compared_methods(config):
            raise UserError("budget=equal: expected methods=[...] to compare, got none")
        if isinstance(config.reference, str):
            config.reference = _label(config.reference.split(), config.budget)


def _read_parts(config: DictConfig) -> set[str]:
    """The keys at the top of ``config`` that its method refers to, directly or through other keys."""
    values = cast(dict[str, Any], OmegaConf.to_container(config, resolve=False))
    others = {key: value for key, value in values.items() if key not in (*PARTS, *SHORT)}
    read, waiting = {"method"}, [*_texts(values.get("method")), *_texts(others)]
    while waiting:
        for root in _REFERENCE.findall(waiting.pop()):
            if root in values and root not in read:
                read.add(root)
                waiting += _texts(values[root])
    return read


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for inner in cast(Mapping[str, object], value).values() for text in _texts(inner)]
    if isinstance(value, list):
        return [text for inner in cast(list[Any], value) for text in _texts(inner)]
    return [value] if isinstance(value, str) else []


def _check_values(config: DictConfig) -> None:
    for key in ("fresh", "progress"):
        switch(key, config[key])
    whole("seed", config.seed, least=0)
    for key in ("max_new_tokens", "max_live"):
        whole(key, config[key], least=1)
    choice("budget", config.budget, BUDGETS)
    if not isinstance(config.cache, str | None) or config.cache == "":
        raise UserError(f"cache: expected run, none or a folder, got {config.cache!r}")
    real("cache_gb", config.cache_gb, above=0.0)


def choices(group: str) -> list[str]:
    """Return the choices of a group, including those of a ``--config-dir``."""
    prepare()
    if GlobalHydra.instance().is_initialized():
        names = GlobalHydra.instance().config_loader().get_group_options(group, ObjectType.CONFIG)
    else:
        with _COMPOSING, initialize_config_dir(version_base="1.3", config_dir=conf_dir()):
            names = GlobalHydra.instance().config_loader().get_group_options(group, ObjectType.CONFIG)
    return sorted(name for name in names if not name.startswith("_"))


def prompt_for(answer_type: str, others: Mapping[str, str] | None = None) -> str:
    """Return the choice of the group ``prompt`` for a type of answer; ``others`` of a prompt go first."""
    return {"number": "math", "open": "any", **(others or {})}.get(answer_type, answer_type)


def fit_prompt(config: DictConfig, name: str, answer_type: str, words: Sequence[str]) -> None:
    """Give ``config`` a prompt that asks for answers of ``answer_type``, the value of the option ``name``.

    It may be the one that its prompt names for the type. A custom prompt that names no type is accepted for
    every type.

    Args:
        config: The configuration, which is changed.
        name: The option.
        answer_type: The type of answers.
        words: The options that it was composed with.

    Raises:
        UserError: If the prompt asks for answers of another type.
    """
    choice(name, answer_type, ANSWER_TYPES)
    prompted = OmegaConf.select(config, "prompt.answer_type")
    if prompted in (None, answer_type):
        return
    others = config.prompt.get("others") or {}
    suited = f"prompt={prompt_for(answer_type, others)}"
    if answer_type not in others:
        raise UserError(
            f"{name}={answer_type}: expected a prompt that asks for such answers, got a prompt for "
            f"{prompted}; use {suited} or {name}={prompted}"
        )
    kept = [word for word, key in zip(words, typed_keys(words), strict=True) if key != "prompt"]
    config.prompt = compose_config([*kept, suited]).prompt


def compared_methods(config: DictConfig) -> dict[str, list[str]]:
    """Return the options of each entry of ``config.methods`` by its label, in order; empty if it is null.

    The first option is the method. Null entries are left out (``${when:${dataset.shots},rap}`` is null
    without exemplars). Under ``budget=equal`` labels leave out the number of samples; of methods that differ
    only in that number the first is used.

    Raises:
        UserError: Unless it is a list of names, or of lists of a name and options, without repetition.
    """
    if config.methods is None:
        return {}
    expected = "methods: expected a list such as [cot,[self_consistency,'k=20']]"
    if not isinstance(config.methods, ListConfig) or not config.methods:
        raise UserError(f"{expected}, got {config.methods}")
    compared: dict[str, list[str]] = {}
    for entry in (entry for entry in config.methods if entry is not None):
        name, *words = list(entry) if isinstance(entry, ListConfig) and entry else [entry]
        if not isinstance(name, str) or not all(isinstance(word, str) and "=" in word for word in words):
            raise UserError(f"{expected}, got {entry} in it")
        changes = [str(word) for word in words]
        if any(key in ("limit", "seed") or key.startswith("dataset") for key in typed_keys(changes)):
            raise UserError(f"methods: expected one seed and data set for all, got {entry} in the list")
        options = [f"method={name}", *changes]
        if options in compared.values():
            raise UserError(
                f"methods: expected each method once, got {' '.join([name, *changes])} twice; remove one"
            )
        if config.budget == "equal" and "method.samples" in typed_keys(changes):
            raise UserError(
                f"methods: expected the number of samples as k under budget=equal, got {entry} in the list; "
                "use k=NUMBER"
            )
        compared.setdefault(_label([name, *changes], config.budget), options)
    return compared


def _label(words: Iterable[str], budget: str) -> str:
    """Return ``words`` as a label, in which ``budget=equal`` leaves out the number of samples."""
    return " ".join(word for word in words if budget != "equal" or not word.startswith("k="))


def run_name(*parts: str) -> str:
    """Return the folder name for ``parts``, the last of which may be options; equal parts get equal names.

    ``limit=5,seed=1`` becomes ``limit_5-seed_1``, which shells and addresses of pages take as it is. Options
    that the other parts name already are left out. A data set in a file has the file's name. Paths keep their
    last component. Long and unusual names, and names with shortened paths, end in a hash.
    """
    texts = [str(part) for part in parts if part]
    named = {f"{group}={text}" for text in texts for group in ("dataset", "method")}
    words = as_typed(word for text in texts for word in _WORDS.split(text))
    words = [word for word in words if word not in named]
    if words[:1] == ["custom"] and (files := [word for word in words if word.startswith("dataset=")]):
        words.remove(files[0])
        words[0] = files[0].rpartition(".")[0]
    name, short = ("-".join(group) for group in (words, [_FOLDERS.sub("", word) for word in words]))
    name, short = name.removeprefix("dataset="), short.removeprefix("dataset=")
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", re.sub(r"[+']", "", short))
    if plain == re.sub("[=,]", "_", name.replace("+", "")) and len(plain) <= 120:
        return plain
    return f"{plain[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


PROMPT_SETTINGS: dict[str, Any] = {"layout": "auto", "system": None, "date": DATE, "chat_options": {}}
"""Settings of a prompt that do not depend on the type of answer, with their defaults."""

PromptLike: TypeAlias = str | PathLike[str] | Mapping[str, object] | Wording
"""The name of a shipped prompt, a file, a mapping or an object."""


def prompt_settings(prompt: PromptLike) -> dict[str, Any]:
    """Return the configuration of the group ``prompt``; its keys are checked when it is built.

    Raises:
        UserError: For a file that cannot be read, and for content that is not a mapping.
    """
    content: Any = asdict(prompt) if isinstance(prompt, Wording) else prompt
    if isinstance(prompt, str | PathLike):
        try:
            content = yaml.safe_load(local_path("prompt", prompt).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise UserError(
                f"prompt={prompt}: expected a YAML file or the name of a shipped prompt, got {error!s:.200}"
            ) from error
    wording = _with_target("Wording", "prompt", content)
    defaults = {"answer_type": None, **PROMPT_SETTINGS}
    settings = {key: wording.pop(key, default) for key, default in defaults.items()}
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
