"""Options of Python and of the command line, and the parts that they configure for a call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypedDict, cast

from omegaconf import DictConfig, OmegaConf

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import choice, whole
from soft_reasoning.configuration.build import (
    SecondModels,
    build_context,
    build_dataset,
    build_method,
    check_fits,
    check_problems,
)
from soft_reasoning.configuration.compose import check_prompt, compose_config, prompt_for
from soft_reasoning.configuration.errors import lacking, near
from soft_reasoning.configuration.implied import (
    METHOD_GROUPS,
    NAMES,
    full_names,
    is_bundled,
    is_file_name,
    model_overrides,
)
from soft_reasoning.configuration.overrides import Override, Overrides, parse
from soft_reasoning.configuration.own_prompt import PromptLike, prompt_settings
from soft_reasoning.configuration.parts import built
from soft_reasoning.engines.abilities import check_abilities
from soft_reasoning.engines.base import Engine
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.functions import Final, Score, Stop, Weigh, as_part
from soft_reasoning.rewards.verifiers import Verifier
from soft_reasoning.scheduling.context import Context, Limits
from soft_reasoning.scheduling.job import Job
from soft_reasoning.scheduling.method import Method, check_method
from soft_reasoning.types import UserError

RUN_KEYS = (
    "budget",
    "dataset.limit",
    "dataset.offset",
    "dataset.sample",
    "fresh",
    "hydra",
    "label",
    "launcher",
    "limit",
    "logging",
    "ray",
)
"""Keys that only a run of a data set reads."""

PARTS = ("verifier", "reward", "final", "acquisition", "stopping")
"""Parts of a method that an option replaces: by a name, a function or an object."""

PER_CALL = ("max_tokens", "max_seconds", "stop", "seed")
"""Options on which no part depends."""

OF_EVERY_METHOD = (*PER_CALL, "max_new_tokens")
"""Options that a call with another method than the reasoner's keeps."""

MOST_CACHED = 64
"""Number of combinations of options whose parts are cached."""


class Options(TypedDict, total=False):
    """Keyword arguments of :class:`~soft_reasoning.SoftReasoner` and of a call; None is the default.

    Options of a call replace the reasoner's.

    Attributes:
        method: A method's name, or a method object.
        preset: The parts of Soft Reasoning: default, paper, paper_literal or released.
        k: Candidates of a round, or samples.
        rounds: Rounds after the first.
        max_tokens: Most generated tokens per question; it holds within a round.
        max_seconds: Most seconds per question, which questions solved together share.
        temperature: Sampling temperature of the candidates; 0 is greedy.
        seed: Seed of every draw.
        max_new_tokens: Most tokens of each completion, a candidate's or the verifier's.
        stop: Texts that end a candidate, besides those of the prompt.
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
    """Keyword arguments of ``SoftReasoner.from_pretrained``: :class:`Options`, and those of loading.

    Attributes:
        device: Such as "cpu" or "cuda:1"; by default a GPU where there is one.
        dtype: Such as "bfloat16" or torch.bfloat16; by default the dtype of the weights.
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
SHORT = tuple(name for name in NAMES if name in KNOWN)


def loading_settings(options: Mapping[str, Any]) -> tuple[dict[str, Any], Options]:
    """Return the configuration keys that the arguments of loading set, and the other options.

    Raises:
        UserError: As :func:`checked`.
    """
    _check_known(options, "from_pretrained", (*KNOWN, *LOADING))
    settings = {f"model.{name}": options[name] for name in LOADING if name in options}
    if "model.device" in settings:
        settings["engine.device"] = settings.pop("model.device")
    if not isinstance(dtype := settings.get("model.dtype"), str | None):
        settings["model.dtype"] = str(dtype).removeprefix("torch.")  # for an object such as torch.float32
    return settings, checked({name: options[name] for name in KNOWN if name in options}, "from_pretrained")


def checked(options: Mapping[str, Any], where: str) -> Options:
    """Return the options that are not None.

    Raises:
        UserError: For an unknown name, a method object without ``solve``, or an invalid limit, seed or stop.
    """
    _check_known(options, where, KNOWN)
    values = {name: value for name, value in options.items() if value is not None}
    Limits(values.get("max_tokens"), values.get("max_seconds"))
    whole("seed", values.get("seed", 0), least=0)
    stop = values.get("stop", ())
    if not _are_texts(stop) or not all(stop):
        raise UserError(f"stop: expected a list of texts, none of them empty, got {stop!r:.80}")
    if not isinstance(values.get("method", ""), str):
        check_method(values["method"])
    return cast(Options, values)


def _check_known(options: Mapping[str, Any], where: str, known: Sequence[str]) -> None:
    for name in options:
        if name not in known:
            raise UserError(
                f"{where}: expected options among {', '.join(known)}, got {name}{near(name, known)}"
            )


def configured(options: Options, overrides: Overrides) -> DictConfig:
    """Return the configuration of ``overrides`` with ``options``.

    Raises:
        UserError: For a value that does not exist, or an option that the method does not have.
    """
    typed = parse(overrides)
    if options.get("method") is None and any(options.get(name) is not None for name in PARTS):
        typed.append(Override("method", "soft_reasoning"))  # objects are no overrides
    for name in ("method", "preset", *PARTS, "max_new_tokens", *SHORT):
        value = options.get(name)
        if value is None:
            continue
        if name not in ("method", "preset") and not isinstance(options.get("method"), str | None):
            raise UserError(f"{name}: expected the name of a method, got an object; set the value in it")
        if isinstance(value, str) or name not in ("method", *PARTS):  # objects replace their parts later
            typed.append(Override("search.stopping.rule" if name == "stopping" else name, str(value)))
    return compose_config(typed)


def check_overrides(overrides: Any) -> list[Override]:
    """Return ``overrides``, a list of texts none of which only a run of a data set reads, as values.

    Raises:
        UserError: Otherwise.
    """
    if not _are_texts(overrides):
        raise UserError(f'overrides: expected a list such as ["method=cot"], got {overrides!r}')
    typed = parse(overrides)
    for override in typed:
        if any(f"{override.key}.".startswith((f"{known}.", f"{known}/")) for known in RUN_KEYS):
            raise UserError(
                f"overrides: expected keys that solving a question reads, got {override}, which "
                "only soft-reasoning run reads; leave it out"
            )
    return typed


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in cast(list[Any], value))


@dataclass(frozen=True)
class Parts:
    """The parts of a call; ``options`` keeps a user's objects alive, whose ids are in the cache's key."""

    options: Options
    config: DictConfig
    method: Method
    context: Context


def check_solvable(jobs: Sequence[Job[Any]]) -> None:
    """Refuse the jobs of a call if one of their problems cannot be solved.

    Raises:
        UserError: In one line.
    """
    for job in jobs[:1]:
        check_abilities(job.method, job.context.engine)
        check_problems([job.problem for job in jobs], job.method, job.context)


class CallBuilder:
    """Builds the parts of calls, and caches them.

    Args:
        model: The model's name in conf/model or on the hub, or its folder.
        prompt: A shipped prompt's name or a custom prompt; None chooses by the model and ``answer_type``.
        answer_type: The type of answers; None uses the prompt's.
        overrides: The user's overrides.
        options: The default options, which those of a call replace.
        settings: Configuration values that no override can hold.
        load: Loads the engine of a configuration.
    """

    def __init__(
        self,
        model: str,
        prompt: PromptLike | None,
        answer_type: str | None,
        overrides: Sequence[str],
        options: Options,
        settings: Mapping[str, Any],
        load: Callable[[DictConfig], Engine],
    ) -> None:
        typed, method = check_overrides(overrides), options.get("method")
        if answer_type is not None:
            choice("answer_type", answer_type, ANSWER_TYPES)
        self._prompt: Mapping[str, Any] | None = None
        if prompt is None:
            prompt = "demo" if is_bundled(model) else prompt_for(answer_type or "open")
        elif not isinstance(prompt, str) or is_file_name(prompt):
            prompt, self._prompt = "any", prompt_settings(prompt)
        free = prompt == "any" and self._prompt is None and answer_type in (None, "open")
        self._overrides = [
            *([Override.of("model.path", model)] if is_bundled(model) else model_overrides(model)),
            Override("prompt", str(prompt)),
            *([Override("prompt.answer_type", "open")] if free else []),
            Override.of("seed", options.get("seed", 0)),
            *full_names(typed, context=[Override("method", method)] if isinstance(method, str) else ()),
        ]
        self.options = options
        self._settings = dict(settings)
        self.answer_type: str = answer_type or ""
        config = self._config(options)
        method = _build_method(options, config)
        self._exemplars = build_dataset(config).exemplars()
        self._lock = threading.Lock()
        self._cache: dict[Hashable, Parts] = {}  # the least recently used first
        self._models = SecondModels()
        self.engine = load(config)
        try:
            self.default = self._parts(options, config, method)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free all models."""
        self.engine.close()
        self._models.close()

    def make(self, changes: Mapping[str, Any]) -> Parts:
        """Return the parts of a call with the options ``changes``.

        With another method, options and overrides of the default method are dropped, but for those that
        every method has.
        """
        changes, defaults = dict(checked(changes, "solve")), dict(self.options)
        if changes.get("method") == self.default.method.name:
            del changes["method"]  # its options and overrides stay
        if changes.get("method", defaults.get("method")) != defaults.get("method"):
            kept = [
                name for name in OF_EVERY_METHOD if isinstance(changes["method"], str) or name in PER_CALL
            ]
            defaults = {key: value for key, value in defaults.items() if key in kept}
        options = cast(Options, {**defaults, **changes})
        key = _key(options)
        if key == _key(self.options):
            parts = self.default
        elif (parts := self._cached(key)) is None:
            config = self._config(options)
            parts = self._parts(options, config, _build_method(options, config))
            self._keep(key, parts)
        limits = Limits(
            options.get("max_tokens") or parts.config.max_tokens,
            options.get("max_seconds") or parts.config.max_seconds,
        )
        prompts = parts.context.prompts.ending(options.get("stop") or ())
        seed = options.get("seed", parts.context.seed)
        judges = {name: replace(judge, seed=seed) for name, judge in parts.context.judges.items()}
        context = replace(parts.context, limits=limits, prompts=prompts, seed=seed, judges=judges)
        check_fits(parts.config, parts.method, context)
        return replace(parts, context=context)

    def _cached(self, key: Hashable) -> Parts | None:
        with self._lock:
            if (parts := self._cache.pop(key, None)) is not None:
                self._cache[key] = parts
            return parts

    def _keep(self, key: Hashable, parts: Parts) -> None:
        with self._lock:
            self._cache[key] = parts
            while len(self._cache) > MOST_CACHED:
                del self._cache[next(iter(self._cache))]

    def _parts(self, options: Options, config: DictConfig, method: Method) -> Parts:
        context = build_context(config, self.engine, self._exemplars, self._models)
        return Parts(options, config, method, context)

    def _config(self, options: Options) -> DictConfig:
        overrides = self._overrides
        if options.get("method") not in (None, self.options.get("method")):
            overrides = [override for override in overrides if override.root not in METHOD_GROUPS]
        config = configured(options, overrides)
        for key, value in self._settings.items():
            OmegaConf.update(config, key, value)
        if self._prompt is not None:
            config.prompt = self._prompt
        if not self.answer_type:
            keys = ("prompt.answer_type", "prompt.default_answer_type")
            types = [str(OmegaConf.select(config, key) or "") for key in keys]
            self.answer_type = types[0] or types[1] or "number"
        check_prompt(config, "answer_type", self.answer_type)
        if config.methods is not None:
            raise UserError(
                "overrides: expected one method, got a comparison; give method=NAME, or compare "
                "with soft-reasoning compare"
            )
        return config


def _key(options: Options) -> Hashable:
    """The options that a method and its prompts depend on; a user's objects need not be hashable."""
    values = {name: value for name, value in options.items() if name not in PER_CALL}
    plain = (str, int, float)
    return tuple(
        (name, type(v).__name__, v if isinstance(v, plain) else id(v)) for name, v in sorted(values.items())
    )


def _build_method(options: Options, config: DictConfig) -> Method:
    """Return the method that ``config`` names with the user's parts, or the user's method object.

    Raises:
        UserError: For a part that the method does not have or that is neither function nor object.
    """
    method = options.get("method")
    if not isinstance(method, str | None):
        return method
    method = build_method(config)
    known = [field.name for field in fields(method)] if is_dataclass(method) else []
    parts: dict[str, Any] = {}
    for name in PARTS:
        part = options.get(name)
        field = "optimiser" if name == "acquisition" else name
        if isinstance(part, str | None):
            continue
        if field not in known:
            raise lacking(name, method.name)
        if name != "acquisition":
            parts[field] = as_part(name, part, *([config.search.rounds] if name == "stopping" else []))
        elif callable(part):
            parts[field] = built(config, "search.optimiser", acquisition=part)
        else:
            raise UserError(
                "acquisition: expected a class of acquisition functions, such as BoTorch's, or "
                f"a function of a model that returns one, got {part!r:.80}"
            )
    return replace(cast(Any, method), **parts) if parts else method
