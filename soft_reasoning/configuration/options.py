"""The options that Python takes: words of a configuration, and fields of a method that they replace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypedDict, TypeGuard, cast

from soft_reasoning.checks import whole
from soft_reasoning.configuration.compose import quoted, typed_keys
from soft_reasoning.configuration.errors import NoSuchOption, near
from soft_reasoning.judge.final import FinalAnswer
from soft_reasoning.judge.reward import Reward
from soft_reasoning.judge.verifier import Score, Verifier, as_verifier
from soft_reasoning.schedule.method import Limits, Method, check_method
from soft_reasoning.search import Stopping
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
)
"""Keys that only a run of a data set reads."""

REPLACED = ("k", "rounds", "temperature", "verifier", "reward", "final", "acquisition", "stopping")
"""Options that replace a value or a part of a method: by a value, an object or a choice's name."""

OF_A_SEARCH = {"preset", *REPLACED} - {"temperature"}
"""Options that choose Soft Reasoning where no method is named."""

OBJECTS = {
    "reward": ("coherence_of", "judge.reward.Reward()"),
    "final": ("choose", "judge.final.FinalAnswer()"),
    "stopping": ("reason", "search.stopping.Stopping()"),
}
"""For parts that are objects: a method of theirs, and an example in errors."""

FOR_ANY = ("max_tokens", "max_seconds", "stop", "seed", "max_new_tokens")
"""Options that hold for any method."""


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
        temperature: Sampling temperature of the candidates; a search also takes 0, greedy decoding.
        seed: Seed of every draw.
        max_new_tokens: Maximum number of tokens per completion, of a candidate or the verifier.
        stop: Texts that end a candidate, besides those of the prompt.
        verifier: Scores a round's candidates: the name of a shipped verifier, a function of the question and
            its candidates that returns a score in [0, 1] for each, or an object with ``verify``.
        reward: The name of a shipped reward, or a :class:`~soft_reasoning.judge.reward.Reward`.
        final: Chooses the answer: the name of a shipped rule, or an object with ``choose``.
        acquisition: The name of a shipped acquisition function, or a class like BoTorch's.
        stopping: Ends the rounds early: the name of a rule, or an object with ``reason``.
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


def loading_settings(options: LoadOptions) -> tuple[dict[str, object], Options]:
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


def checked(options: Mapping[str, object], where: str) -> Options:
    """Return the options that are not None.

    Raises:
        UserError: For an unknown name, a method object without ``solve``, or an invalid limit, seed or stop.
    """
    _check_known(options, where, KNOWN)
    values = cast(Options, {name: value for name, value in options.items() if value is not None})
    Limits(values.get("max_tokens"), values.get("max_seconds"))
    whole("seed", values.get("seed", 0), least=0)
    stop = values.get("stop", ())
    if not _are_texts(stop) or not all(stop):
        raise UserError(f"stop: expected a list of non-empty strings, got {stop!r:.80}")
    if not isinstance(method := values.get("method"), str | None):
        check_method(method)
    return values


def _check_known(options: Mapping[str, object], where: str, known: Sequence[str]) -> None:
    for name in options:
        if name not in known:
            raise UserError(
                f"{where}: expected options among {', '.join(known)}, got {name}{near(name, known)}"
            )


def named(options: Options) -> list[str]:
    """Return the words of a configuration for the options that name choices: a method, a preset, parts."""
    names = {name: options.get(name) for name in ("method", "preset", *REPLACED)}
    return [f"{name}={quoted(value)}" for name, value in names.items() if isinstance(value, str)]


def replaced(method: Method, options: Options) -> Method:
    """Return ``method`` with the values and the objects among ``options`` in their places.

    All are replaced at once, since a method checks them together.

    Raises:
        NoSuchOption: For an option that the method does not have.
        UserError: For a part that is not one.
    """
    if (tokens := options.get("max_new_tokens")) is not None:
        method = _limited(method, tokens)
    own: dict[str, Any] = {}
    for name in REPLACED:
        value = options.get(name)
        if isinstance(value, str | None):  # a name is part of the configuration
            continue
        field, _, rest = getattr(method, "short", {}).get(name, name).partition(".")
        _check_has(method, field, name, method.name)
        value = check_part(name, value)
        if rest:
            part = own.get(field, getattr(method, field))
            _check_has(part, rest, name, method.name)
            value = replace(part, **{rest: value})
        own[field] = value
    return replace(cast(Any, method), **own) if own else method


def _check_has(part: object, field: str, name: str, method: str) -> None:
    """Reject a ``field`` that ``part`` does not have; ``name`` is its option in messages."""
    if not is_dataclass(part) or field not in [known.name for known in fields(part)]:
        raise NoSuchOption(name, f"expected a method that reads it, got method={method}; leave {name} out")


def _limited(part: Any, tokens: int) -> Any:
    """Return ``part`` with the limit ``tokens`` of its completions, and of those of the parts inside."""
    if not is_dataclass(part) or isinstance(part, type):
        return part
    values = {field.name: getattr(part, field.name) for field in fields(part) if field.init}
    changes = {
        name: tokens if name == "max_new_tokens" else _limited(value, tokens)
        for name, value in values.items()
    }
    changes = {name: value for name, value in changes.items() if value is not values[name]}
    return replace(cast(Any, part), **changes) if changes else part


def check_part(name: str, value: object) -> object:
    """Return ``value`` as the part ``name``; a function that scores candidates becomes a verifier.

    Raises:
        UserError: If it is no such part.
    """
    if name == "verifier":
        return as_verifier(value)
    if name == "acquisition" and not callable(value):
        raise UserError(
            "acquisition: expected a class of acquisition functions, such as BoTorch's, or a function of a "
            f"model that returns one, got {value!r:.80}"
        )
    if name in OBJECTS:
        method, example = OBJECTS[name]
        if isinstance(value, type) or not callable(getattr(value, method, None)):
            raise UserError(
                f"{name}: expected a name, or an object with {method} like {example}, got {value!r:.80}"
            )
    return value


def check_overrides(overrides: object) -> list[str]:
    """Return ``overrides``, a list of strings.

    Raises:
        UserError: If they are not a list of strings, or one has a key that only a run of a data set reads.
    """
    if not _are_texts(overrides):
        raise UserError(f'overrides: expected a list such as ["method=cot"], got {overrides!r}')
    for key, word in zip(typed_keys(overrides), overrides, strict=True):
        if any(f"{key}.".startswith((f"{known}.", f"{known}/")) for known in RUN_KEYS):
            raise UserError(
                f"overrides: expected keys that solving a question reads, got {word}, which "
                "only soft-reasoning run reads; leave it out"
            )
    return list(overrides)


def _are_texts(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, list | tuple) and all(
        isinstance(text, str) for text in cast(Sequence[object], value)
    )
