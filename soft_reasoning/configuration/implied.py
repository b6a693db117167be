"""What follows from the options that a user types: short names, files, and choices that belong together."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from soft_reasoning.configuration.conf_dir import choices, composed, known_keys
from soft_reasoning.configuration.errors import NoSuchOption, lacking, unknown_key
from soft_reasoning.configuration.keys import keys_named
from soft_reasoning.configuration.overrides import Override, Overrides, parse
from soft_reasoning.data.demo import FOLDER
from soft_reasoning.data.sources import READERS
from soft_reasoning.types import UserError

METHOD_GROUPS = (
    "method",
    "preset",
    "embedding",
    "search",
    "surrogate",
    "acquisition",
    "candidate_points",
    "batch",
    "verifier",
    "reward",
    "final",
    "decoding",
)
"""Groups whose options belong to one method."""

PRESET_METHODS = ("soft_reasoning", "random_embedding")
"""Methods whose parts a preset chooses."""

JUDGED_METHODS = (*PRESET_METHODS, "verified_sampling")
"""Methods whose candidates a verifier scores."""

OWN_JUDGES = (
    "fresh",
    "multi_generate",
    "multi_judge",
    "probability",
    "program",
    "single_generate",
    "single_judge",
)
"""Verifiers with which a model judges itself."""

NEUTRAL = ("any", "json", "code")
"""Prompts without wording, in which a solution may be as long as the model makes it."""

MAX_NEW_TOKENS = 512
"""Default of models other than the bundled one: the paper's 300 cut a tenth of their solutions of GSM8K."""

NAMES = {
    "k": ("search.candidates", "method.samples", "method.paths", "method.candidates"),
    "d": ("embedding.dim",),
    "rounds": ("search.rounds",),
    "temperature": ("method.temperature",),
}
"""Short names whose option depends on the method: the first that the configuration has."""


log: logging.Logger = logging.getLogger(__name__)

SEARCH_PATH = "hydra.searchpath"
"""Folders beside conf/ with further choices."""


def complete(overrides: Overrides, context: Overrides = ()) -> list[Override]:
    """Return ``overrides`` with full keys, and those that follow from them.

    ``model=A/NAME`` becomes a model's path, ``prompt=FILE`` the choice ``file``, and ``dataset=FILE`` the
    choice ``custom``. Models other than the bundled one get neither its sigma nor its prompt. They get
    ``MAX_NEW_TOKENS`` for a solution unless a preset or an experiment is named. If no verifier, option of
    one, preset or experiment is named, their programs judge numbers (``verifier=program``): on real models
    these judge far better than verdicts. Where such a model judges itself, ``final=weighted_vote`` is the
    default: it adds up rewards, so that a poor judge does little harm. ``preset=default`` is added if the
    chosen method has no presets and none is named: an experiment may name a preset for Soft Reasoning, which
    other methods do not have. ``method=cot`` is added for open questions (``answer_type=open``) if no part of
    a method is named.

    Args:
        overrides: The options.
        context: As for :func:`full_names`.

    Raises:
        UserError: As :func:`full_names`.
    """
    return _implied(full_names(overrides, context))


@cache
def say_open_default() -> None:
    """Say once per process why open questions are answered by one greedy solution."""
    log.warning(
        "open questions: method=cot, since no measured judge of free text was worth its tokens; "
        "method=soft_reasoning or verifier=NAME searches"
    )


def _implied(overrides: Sequence[Override], named: bool = False) -> list[Override]:
    """As :func:`complete`; ``named`` says that a part of a method is named by a short name."""
    result = [new for override in overrides for new in _with_files(override)]
    chosen = {override.key: override for override in result if override.sign != "~"}
    text = {key: override.text for key, override in chosen.items()}
    path = text.get("model.path", "demo")
    bundled = text.get("model", "demo") == "demo" and is_bundled(path)
    if not bundled and not {"model", "experiment"} & {*chosen}:  # the bundled model's sigma suits no other
        result.insert(0, Override("model", path if path in choices("model") else "_base"))
    prompted = {"prompt", "experiment"} & {*chosen} or text.get("dataset", "demo") != "demo"
    if not bundled and not prompted and text.get("engine", "hf") != "fake":
        result.append(Override("prompt", "math"))
    if text.get("prompt") in NEUTRAL and "max_new_tokens" in chosen and "prompt.max_new_tokens" not in chosen:
        result.append(Override("prompt.max_new_tokens", "null"))
    if "verifier._target_" in chosen and "verifier" not in chosen:  # it does not have the default's options
        result.insert(0, Override("verifier", "none"))
    named = named or any(o.root in (*METHOD_GROUPS, "methods", "experiment") for o in result)
    if "open" in (text.get("dataset.answer_type"), text.get("prompt.answer_type")) and not named:
        say_open_default()
        result.append(Override("method", "cot"))
        text["method"] = "cot"
    method = text.get("method", "soft_reasoning")
    judged = [name in JUDGED_METHODS for name in method.split(",")]  # of a sweep, else of one method
    by_default = _by_default(result, text)
    if not bundled and "max_new_tokens" not in chosen and by_default:
        result.append(Override("max_new_tokens", str(MAX_NEW_TOKENS)))
    if "methods" in chosen and "method" not in chosen:  # of a comparison each method is completed later
        return result
    if by_default:
        if all(judged) and "final" not in chosen and not bundled and _judges_itself(text):
            result.append(Override("final", "weighted_vote"))
        unnamed = not any(override.root == "verifier" for override in result)
        if not bundled and any(judged) and unnamed:
            result[:0] = _default_verifier(result, judged)
    if "preset" not in chosen and method in choices("method") and method not in PRESET_METHODS:
        result.append(Override("preset", "default"))
    return result


def _by_default(overrides: Sequence[Override], text: Mapping[str, str]) -> bool:
    """Whether defaults decide on limit, verifier and final rule: no preset or experiment brings its own."""
    named = any(override.root == "experiment" for override in overrides)
    return not named and text.get("preset", "default") == "default" and text.get("engine", "hf") != "fake"


def _judges_itself(text: Mapping[str, str]) -> bool:
    verifiers = text.get("verifier", "program").split(",")
    return all(name in OWN_JUDGES for name in verifiers) and "verifier._target_" not in text


def _default_verifier(overrides: Sequence[Override], judged: Sequence[bool]) -> list[Override]:
    """``verifier=program`` where programs can judge every method, data set and prompt of a sweep."""
    sweep = {*product(*map(_prompt_choices, overrides))}
    computed = [_computes(choice) for choice in sweep]
    if all((*judged, *computed)):
        return [Override("verifier", "program")]
    if any(computed):
        log.warning(
            "verifier=single_judge in the whole sweep: programs cannot judge all of it; name a verifier"
        )
    return []


def _prompt_choices(override: Override) -> list[Override | None]:
    """What an override, or each value of a sweep, says about the prompt; None is nothing."""
    if override.root not in ("dataset", "prompt") and override.key != SEARCH_PATH:
        return [None]
    if override.value is None:
        return [override]
    return [Override(override.key, value, override.sign) for value in override.values]


def _computes(overrides: Iterable[Override | None]) -> bool:
    """Whether the prompt under ``overrides`` asks for numbers, and for programs that compute them."""
    config = composed(override for override in overrides if override is not None)
    numbers = OmegaConf.select(config, "prompt.answer_type") == "number"
    return numbers and OmegaConf.select(config, "prompt.wording.tasks.program") is not None


def _with_files(override: Override) -> list[Override]:
    """Return ``override``, or what it means if it names a file or a model on the hub."""
    match override.key:
        case "prompt" if is_file_name(override.text):
            path = str(Path(override.text).expanduser().absolute())
            return [Override("prompt", "file"), Override.of("prompt.path", path)]
        case "dataset" if Path(override.text).suffix.lower() in READERS:
            return [Override("dataset", "custom"), Override.of("dataset.path", override.text)]
        case "model" if override.value and is_path(override.value):
            return model_overrides(override.value)
        case _:
            return [override]


def is_path(model: str) -> bool:
    """Whether a value of ``model`` is a folder or a name on the hub instead of a name of conf/model."""
    return "/" in model or model.startswith((".", "~")) or model.lower().endswith(".gguf")


def model_overrides(path: str) -> list[Override]:
    """Return the overrides for a model: a name of conf/model, a folder or a hub name; commas make a sweep."""
    if path in choices("model"):
        return [Override("model", path)]
    if "," in path and all(is_path(part) for part in path.split(",")):
        return [Override("model", "_base"), Override("model.path", path)]
    return [Override("model", "_base"), Override.of("model.path", path)]


def is_bundled(model: str) -> bool:
    """Whether ``model`` is the name or the folder of the bundled model."""
    return model == "demo" or Path(model).expanduser().resolve() == (FOLDER / "model").resolve()


def is_file_name(name: str) -> bool:
    """Whether ``name`` names a file rather than a shipped prompt."""
    return name.endswith((".yaml", ".yml"))


def full_names(overrides: Overrides, context: Overrides = ()) -> list[Override]:
    """Return ``overrides`` with the full key of each option that is named without its group.

    ``NAMES`` has those that depend on the method. Any other option of the method's parts may be named by the
    last part of its key if only one has this name: ``delta`` is ``acquisition.delta``.

    Args:
        overrides: The options.
        context: Further options, which decide on the method's parts.

    Raises:
        NoSuchOption: For a name that no option has.
        UserError: For a name that several options have, in a comparison, and if swept methods have different
            options.
    """
    overrides, known = parse(overrides), known_keys()
    short = [override for override in overrides if _is_short(override, known)]
    if not short:
        return overrides
    others = [override for override in overrides if override not in short]
    name, value = short[0].key, short[0].value
    if any(override.key == "methods" for override in others):
        raise UserError(
            f'{name}: expected it beside a method in quotes, such as "soft_reasoning {name}='
            f'{value}", got it for a whole comparison'
        )
    base = [o for o in (*parse(context), *others) if o.root != "hydra" or o.key == SEARCH_PATH]
    swept = [override.values if override.key == "method" else override.values[:1] for override in base]
    methods = next((values for o, values in zip(base, swept, strict=True) if o.key == "method"), ["-"])
    found: list[list[Override]] = []
    for method in methods:
        words = [
            override
            if override.value is None
            else Override(override.key, method if override.key == "method" else values[0], override.sign)
            for override, values in zip(base, swept, strict=True)
        ]
        config = composed(_implied(words, named=True))
        found.append([new for override in short for new in _full(override, config, known)])
    if any(options != found[0] for options in found):
        raise UserError(
            f"{name}: expected methods with the same key for it, got {', '.join(methods)}; sweep "
            "over one of them at a time"
        )
    return [*others, *found[0]]


def _is_short(override: Override, known: set[str]) -> bool:
    plain = not override.sign and not re.search(r"[.@/]", override.key)
    return override.key in NAMES or (plain and override.key not in known)


def _full(override: Override, config: DictConfig, known: set[str]) -> list[Override]:
    """The overrides with full keys that ``override`` stands for in ``config``."""
    name, value = override.key, override.value or ""
    if name == "temperature":
        greedy = value in ("0", "0.0")
        if "decoding" in config:
            sampled = [Override("decoding", "sampled"), Override("decoding.temperature", value)]
            return [Override("decoding", "greedy")] if greedy else sampled
        if greedy and "temperature" not in config.method and "verifier" not in config:
            return []  # it is greedy anyway
    if name in NAMES:
        key = next((key for key in NAMES[name] if OmegaConf.select(config, key) is not None), None)
        if key is None:
            raise lacking(name, config.method.name)
        return [Override(key, value)]
    keys, others = keys_named(name, config, METHOD_GROUPS)
    if keys and len(keys) + len(others) > 1:
        raise UserError(
            f"{name}: expected a full key, got the last part of {', '.join((*keys, *others))}; name one"
        )
    if not keys:
        raise NoSuchOption(*unknown_key(name, "", known).split(": ", 1))
    return [Override(keys[0], value)]
