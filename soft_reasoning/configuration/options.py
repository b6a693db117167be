"""Keyword arguments of ``SoftReasoner`` and of a call: how they become a configuration and a method."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypedDict, cast

from omegaconf import DictConfig, OmegaConf

from soft_reasoning.checks import real, whole
from soft_reasoning.configuration.build import build_method, built
from soft_reasoning.configuration.compose import compose_config, override
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.functions import Final, Score, Stop, Weigh, part_of
from soft_reasoning.rewards.verifiers import Verifier
from soft_reasoning.scheduling.context import Context, Limits
from soft_reasoning.scheduling.method import Method, check_method
from soft_reasoning.types import UserError

OF_RUNS = (
    "budget", "dataset.limit", "dataset.offset", "dataset.sample", "fresh", "hydra", "label", "launcher",
    "limit", "logging", "ray",
)  # fmt: skip
"""What only a run of a data set reads."""

KEYS = {
    "k": ("search.candidates", "method.samples", "method.paths", "method.candidates"),
    "rounds": ("search.rounds",),
    "temperature": ("method.temperature",),
}
"""Options whose keys depend on the method: the first that is there."""

PARTS = ("verifier", "reward", "final", "acquisition", "stopping")
"""Parts of a method that may be a user's own: a name, a function or an object."""

OF_METHODS = (
    "method", "preset", "embedding", "search", "surrogate", "acquisition", "candidate_points", "batch",
    "features",
    "verifier", "reward", "final", "decoding",
)  # fmt: skip
"""Groups whose overrides belong to one method."""


class Options(TypedDict, total=False):
    """Keyword arguments of :class:`~soft_reasoning.SoftReasoner` and of a call; None is the default.

    A call's replace the reasoner's.

    Attributes:
        method: A method's name, or an object of your own.
        preset: Which parts Soft Reasoning has: default, paper, paper_literal or released.
        k: Candidates of a round, or samples.
        rounds: Rounds after the first.
        max_tokens: Most generated tokens per question; it holds within a round.
        max_seconds: Most seconds per question, which questions solved together share.
        temperature: Sampling temperature of the candidates; 0 is greedy.
        seed: Seed of every draw.
        max_new_tokens: Most tokens of each completion, a candidate's or the verifier's.
        stop: Texts that end a candidate, besides the prompt's own.
        verifier: Scores a round's candidates: the name of a shipped verifier, a function of the question and
            its candidates that returns a score in [0, 1] for each, or an object with ``verify``.
        reward: The name of a shipped reward, a function of a candidate's score and coherence, or a
            :class:`~soft_reasoning.rewards.combine.Reward`.
        final: Chooses the answer: the name of a shipped rule, a function of all candidates, or an object.
        acquisition: The name of a shipped acquisition function, or a class of BoTorch's kind.
        stopping: Ends the rounds early: the name of a rule, a function of the rewards of every round, or an
            object with ``reason``.
    """

    method: str | Method | None
    preset: str | None
    k: int | None
    rounds: int | None
    max_tokens: int | None
    max_seconds: float | None
    temperature: float | None
    seed: int | None
    max_new_tokens: int | None
    stop: Sequence[str] | None
    verifier: str | Score | Verifier | None
    reward: str | Weigh | None
    final: str | Final | FinalAnswer | None
    acquisition: str | Callable[..., Any] | None
    stopping: str | Stop | None


class LoadOptions(Options, total=False):
    """Keyword arguments of ``SoftReasoner.from_pretrained``: those of :class:`Options`, and of loading.

    Attributes:
        device: Such as "cpu" or "cuda:1"; by default a GPU where there is one.
        dtype: Such as "bfloat16" or torch.bfloat16; by default the model's own.
        device_map: How weights are spread over devices, as in transformers.
        quantization: "4bit", "8bit", or the arguments of BitsAndBytesConfig.
        revision: The model's revision on the hub.
        adapter: A folder of PEFT weights, merged at loading.
        attn_implementation: As in transformers.
        trust_remote_code: Whether code of the model's repository may run.
    """

    device: str | None
    dtype: Any
    device_map: Any
    quantization: Any
    revision: str | None
    adapter: str | None
    attn_implementation: str | None
    trust_remote_code: bool


KNOWN = tuple(Options.__annotations__)
LOADING = tuple(name for name in LoadOptions.__annotations__ if name not in KNOWN)
INSTEAD = {
    "torch_dtype": "dtype=", "load_in_4bit": 'quantization="4bit"', "load_in_8bit": 'quantization="8bit"',
    "quantization_config": "quantization={...}", "stop_strings": "stop=", "max_length": "max_new_tokens=",
}  # fmt: skip
"""Arguments of transformers, and what they are called here."""


def loading_settings(options: Mapping[str, Any]) -> tuple[dict[str, Any], Options]:
    """Return the keys of the configuration that the arguments of loading set, and the other options.

    Raises:
        UserError: For an unknown name, with the one to use instead where it is known.
    """
    for name in options:
        if name in INSTEAD:
            raise UserError(f"from_pretrained: expected {INSTEAD[name]} in place of {name}; change it")
    _known(options, "from_pretrained", (*KNOWN, *LOADING))
    settings = {f"model.{name}": options[name] for name in LOADING if name in options}
    if "model.device" in settings:
        settings["engine.device"] = settings.pop("model.device")
    if not isinstance(dtype := settings.get("model.dtype"), str | None):
        settings["model.dtype"] = str(dtype).removeprefix("torch.")  # of an object such as torch.float32
    rest = {name: value for name, value in options.items() if name in KNOWN}
    return settings, checked(rest, "from_pretrained")


def _known(options: Mapping[str, Any], where: str, known: Sequence[str]) -> None:
    for name in options:
        if name not in known:
            raise UserError(f"{where}: expected options among {', '.join(known)}, got {name}")


def checked(options: Mapping[str, Any], where: str) -> Options:
    """Return the options that are not None.

    Raises:
        UserError: For an unknown name, what is no method, and a bound, seed or stop text out of its range.
    """
    _known(options, where, KNOWN)
    values = {name: value for name, value in options.items() if value is not None}
    Limits(values.get("max_tokens"), values.get("max_seconds"))
    whole("seed", values.get("seed", 0), least=0)
    stop = values.get("stop", ())
    if not _are_texts(stop) or not all(stop):
        raise UserError(f"stop: expected a list of texts, none of them empty, got {stop!r:.80}")
    if not isinstance(values.get("method", ""), str):
        check_method(values["method"])
    return cast(Options, values)


def changed(options: Options, changes: Mapping[str, Any]) -> Options:
    """Return the options of a call; with another method, what belongs to the reasoner's is not kept."""
    changes = checked(changes, "solve")
    kept: Mapping[str, Any] = options
    if changes.get("method", options.get("method")) != options.get("method"):
        kept = {name: value for name, value in options.items() if name in ("max_tokens", "max_seconds")}
    return cast(Options, {**kept, **changes})


def key_of(options: Options) -> Hashable:
    """Return what a method and its prompts depend on; objects of the user's need not be hashable."""
    names = ("method", "preset", "k", "rounds", "temperature", "max_new_tokens", *PARTS)
    values = (options.get(name) for name in names)
    return tuple(value if isinstance(value, str | int | float | None) else id(value) for value in values)


def applied(options: Options, context: Context) -> Context:
    """Return ``context`` with the bounds, the seed and the stop texts of ``options``."""
    limits = Limits(
        options.get("max_tokens") or context.limits.max_tokens,
        options.get("max_seconds") or context.limits.max_seconds,
    )
    prompts = context.prompts.ending(options.get("stop") or ())
    return replace(context, limits=limits, prompts=prompts, seed=options.get("seed", context.seed))


def configured(options: Options, overrides: Sequence[str]) -> DictConfig:
    """Return the configuration of ``overrides`` with ``options``.

    Raises:
        UserError: For a value that does not exist, or an option that the method does not have.
    """
    chosen = [*overrides]
    for name in ("method", "preset", *PARTS):
        if isinstance(value := options.get(name), str):
            chosen.append(f"{'search.stopping.rule' if name == 'stopping' else name}={value}")
    if (most := options.get("max_new_tokens")) is not None:
        chosen.append(override("max_new_tokens", whole("max_new_tokens", most, least=1)))
    config = compose_config(chosen)
    more: list[str] = []
    for name in KEYS:
        if (value := options.get(name)) is None:
            continue
        if not isinstance(options.get("method"), str | None):
            raise UserError(f"{name}: expected the name of a method, got an object; set it there")
        value = real(name, value, least=0.0) if name == "temperature" else value
        more += method_overrides(name, value, config)
    return compose_config([*chosen, *more]) if more else config


def method_overrides(name: str, value: object, config: DictConfig) -> list[str]:
    """Return the overrides that set ``name``, one of ``KEYS``, for the method of ``config``.

    Raises:
        UserError: If the method does not have it.
    """
    if name == "temperature":
        greedy = str(value) in ("0", "0.0")
        if "decoding" in config:
            return ["decoding=greedy"] if greedy else ["decoding=sampled", f"decoding.temperature={value}"]
        if greedy and "temperature" not in config.method and "verifier" not in config:
            return []  # greedy in any case
    key = next((key for key in KEYS[name] if OmegaConf.select(config, key) is not None), None)
    if key is None:
        raise _lacking(name, config.method.name)
    return [f"{key}={value}"]


def configured_method(options: Options, config: DictConfig) -> Method:
    """Return the method that ``config`` names with the user's parts in it, or the user's object.

    Raises:
        UserError: For a part that the method does not have, or one that is neither function nor object.
    """
    given = {name: value for name in PARTS if not isinstance(value := options.get(name), str | None)}
    method = options.get("method")
    if not isinstance(method, str | None):
        for name in given:
            raise UserError(f"{name}: expected the name of a method, got an object; set it there")
        return method
    method = build_method(config)
    fields_of = [field.name for field in fields(method)] if is_dataclass(method) else []
    parts: dict[str, Any] = {}
    for name, value in given.items():
        field = "optimiser" if name == "acquisition" else name
        if field not in fields_of:
            raise _lacking(name, method.name)
        if name == "acquisition":
            if not callable(value):
                raise UserError("acquisition: expected a class of acquisition functions, such as BoTorch's, "
                                f"or a function that makes one of a model, got {value!r:.80}")  # fmt: skip
            parts[field] = built(config, "search.optimiser", acquisition=value)
        elif name == "stopping":
            parts[field] = part_of(name, value, config.search.rounds)
        else:
            parts[field] = part_of(name, value)
    return replace(cast(Any, method), **parts) if parts else method


def _lacking(name: str, method: str) -> UserError:
    return UserError(f"{name}: expected a method that has it, got method={method}; leave {name} out")


def spelled(overrides: Sequence[str]) -> list[str]:
    """Return the overrides of a command line with ``k``, ``rounds`` and ``temperature`` as the method's keys.

    Raises:
        UserError: For a method that lacks one of them, and in a comparison.
    """
    pairs = [(word, *word.partition("=")[::2]) for word in overrides]
    asked = {key: value for _, key, value in pairs if key in KEYS}
    if not asked:
        return list(overrides)
    name = next(iter(asked))
    if any(key == "methods" for _, key, _ in pairs):
        raise UserError(f'{name}: expected it beside a method in quotes, such as "soft_reasoning {name}='
                        f'{asked[name]}", got it for a whole comparison')  # fmt: skip
    methods = next((value for _, key, value in pairs if key == "method"), "soft_reasoning").split(",")
    made: list[list[str]] = []
    for config in (compose_config([f"method={method}"]) for method in methods):
        more = [word for word, key, _ in pairs if key not in KEYS]
        made.append(more + [word for key in asked for word in method_overrides(key, asked[key], config)])
    if any(more != made[0] for more in made):
        raise UserError(f"{name}: expected methods that call it the same, got {', '.join(methods)}; sweep "
                        "over one of them at a time")  # fmt: skip
    return made[0]


def without_parts(overrides: Sequence[str]) -> list[str]:
    """Return ``overrides`` without those of the parts of a method."""
    return [word for word in overrides if re.split(r"[=./]", word.lstrip("+~"))[0] not in OF_METHODS]


def check_overrides(overrides: Any) -> None:
    """Check that ``overrides`` is a list of texts, none of which only a run of a data set reads.

    Raises:
        UserError: Otherwise.
    """
    if not _are_texts(overrides):
        raise UserError(f'overrides: expected a list such as ["method=cot"], got {overrides!r}')
    for word in overrides:
        key = word.lstrip("+~").partition("=")[0]
        if any(key == known or key.startswith((f"{known}.", f"{known}/")) for known in OF_RUNS):
            raise UserError(f"overrides: expected what solving a question takes, got {word}, which only "
                            "soft-reasoning run reads; leave it out")  # fmt: skip


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in cast(list[Any], value))
