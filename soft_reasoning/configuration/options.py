"""The options that Python takes, and the configuration that results from them and from overrides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, cast

from omegaconf import DictConfig

from soft_reasoning.checks import whole
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.configuration.errors import near
from soft_reasoning.configuration.implied import NAMES
from soft_reasoning.configuration.overrides import Override, Overrides, parse
from soft_reasoning.rewards.combine import Reward
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.functions import Score
from soft_reasoning.rewards.verifiers import Verifier
from soft_reasoning.scheduling.context import Limits
from soft_reasoning.scheduling.method import Method, check_method
from soft_reasoning.search.stopping import Stopping
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
"""Parts of a method that an option replaces: by a name or an object."""

PER_CALL = ("max_tokens", "max_seconds", "stop", "seed")
"""Options on which no part depends."""

OF_EVERY_METHOD = (*PER_CALL, "max_new_tokens")
"""Options that a call with another method than the reasoner's keeps."""


class Options(TypedDict, total=False):
    """Keyword arguments of :class:`~soft_reasoning.SoftReasoner` and of a call; None is the default.

    Options of a call replace the reasoner's.

    Attributes:
        method: A method's name, or a method object.
        preset: The parts of Soft Reasoning: default, paper, paper_literal or released.
        k: Candidates of a round, or samples.
        rounds: Rounds after the first.
        max_tokens: Maximum number of generated tokens per question; it holds within a round.
        max_seconds: Time limit per question; questions that are solved together share the time.
        temperature: Sampling temperature of the candidates; 0 is greedy.
        seed: Seed of every draw.
        max_new_tokens: Maximum number of tokens per completion, of a candidate or the verifier.
        stop: Texts that end a candidate, besides those of the prompt.
        verifier: Scores a round's candidates: the name of a shipped verifier, a function of the question and
            its candidates that returns a score in [0, 1] for each, or an object with ``verify``.
        reward: The name of a shipped reward, or a :class:`~soft_reasoning.rewards.combine.Reward`.
        final: Chooses the answer: the name of a shipped rule, or an object with ``choose``, like
            :class:`~soft_reasoning.rewards.final.FinalAnswer`.
        acquisition: The name of a shipped acquisition function, or a class like BoTorch's.
        stopping: Ends the rounds: the name of a rule, or an object with ``reason``, like
            :class:`~soft_reasoning.search.stopping.Stopping`.
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
    reward: str | Reward | None
    final: str | FinalAnswer | None
    acquisition: str | Callable[..., Any] | None
    stopping: str | Stopping | None


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
    """Return ``overrides``, a list of texts, as values.

    Raises:
        UserError: If they are not a list of texts, or one has a key that only a run of a data set reads.
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
