"""The options that Python takes: a method, and the values and parts of it that they replace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, TypedDict, cast

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.checks import NoSuchOption, OptionError, texts, whole
from soft_reasoning.configuration.parts import Setting, check_part, imported, limited, near, parameters
from soft_reasoning.configuration.registry import GROUPS, PARTS
from soft_reasoning.engine.base import Engine
from soft_reasoning.judge.final import FinalAnswer
from soft_reasoning.judge.reward import Reward
from soft_reasoning.judge.verifier import Score, Verifier, as_verifier
from soft_reasoning.schedule.method import Limits, Method, check_method
from soft_reasoning.search import Stopping
from soft_reasoning.search.embedding import Embedding
from soft_reasoning.search.optimiser import Optimiser
from soft_reasoning.types import Sampling, UserError

FOR_ANY = ("max_tokens", "max_seconds", "stop", "seed", "max_new_tokens")
"""Options that hold for any method."""


class Options(TypedDict, total=False):
    """Keyword arguments of :class:`~soft_reasoning.SoftReasoner` and of a call; None is the default.

    Options of a call replace the reasoner's. A part is a shipped choice's name, or an object; a short name
    (``d``, ``delta``, ...) sets one value of a part, and every other value is set in an object.

    Attributes:
        method: A method's name, or a method object.
        preset: The parts of Soft Reasoning: default, paper, paper_literal or released.
        k: Candidates of a round, or samples.
        rounds: Rounds after the first.
        max_tokens: Maximum number of generated tokens per question; it holds within a round.
        max_seconds: Time limit per question; questions that are solved together share the time.
        temperature: Sampling temperature of the candidates; a search also takes 0, greedy decoding.
        top_p: Total probability of the likeliest tokens that samples are drawn from; 1 is off.
        seed: Seed of every draw.
        max_new_tokens: Maximum number of tokens per completion, of a candidate or the verifier.
        stop: Texts that end a candidate, besides those of the prompt.
        d: Dimensions of the search for each soft token.
        delta: The exploration parameter of adaptive expected improvement.
        lambda_: The variance of a reward's noise in the surrogate.
        epsilon: The threshold of the stopping rules ``improvement`` and ``difference``.
        placement: Place of the soft tokens in the prompt.
        point: The file of a learnt point, for ``method="soft_token"``.
        probe: The file of a learnt judge of hidden states.
        verifier: Scores a round's candidates: the name of a shipped verifier, a function of the question and
            its candidates that returns a score in [0, 1] for each, or an object with ``verify``.
        reward: The name of a shipped reward, or a :class:`~soft_reasoning.judge.reward.Reward`.
        final: Chooses the answer: the name of a shipped rule, or an object with ``choose``.
        acquisition: The name of a shipped acquisition function, or a class like BoTorch's.
        stopping: Ends the rounds early: the name of a rule, or an object with ``reason``.
        embedding, search, surrogate, candidate_points, batch, decoding: The other parts of a search.
    """

    method: str | Method | None
    preset: str | None
    k: int | None
    rounds: int | None
    max_tokens: int | None
    max_seconds: float | None
    temperature: float | None
    top_p: float | None
    seed: int | None
    max_new_tokens: int | None
    stop: Sequence[str] | None
    d: int | None
    delta: float | None
    lambda_: float | None
    epsilon: float | None
    placement: str | None
    point: Any
    probe: Any
    verifier: str | Score | Verifier | None
    reward: str | Reward | None
    final: str | FinalAnswer | None
    acquisition: str | Callable[..., Any] | None
    stopping: str | Stopping | None
    embedding: str | Embedding | None
    search: str | Optimiser | None
    surrogate: Any
    candidate_points: Any
    batch: Any
    decoding: str | Sampling | None


class LoadOptions(Options, total=False):
    """Keyword arguments of ``SoftReasoner.from_pretrained``: :class:`Options`, and those of loading.

    Attributes:
        device: Such as "cpu" or "cuda:1"; by default a GPU where there is one.
        dtype: Such as "bfloat16" or torch.bfloat16; by default the dtype of the weights.
        device_map: How weights are spread over devices, as in transformers.
        quantization: "4bit", "8bit", or the arguments of BitsAndBytesConfig.
        revision: The model's revision on the hub.
        tokenizer: Of a served model: a folder, hub name or GGUF file; without one, messages are sent.
        adapter: A folder of PEFT weights, merged at loading.
        attn_implementation: As in transformers.
        trust_remote_code: Whether code of the model's repository may run.
        engine: What runs the model: hf, served (a URL), vllm, llamacpp or fake, or an engine.
        grader: How answers are read and compared: a shipped grader's name, or an object.
    """

    device: str | None
    dtype: Any
    device_map: Any
    quantization: Any
    revision: str | None
    tokenizer: str | None
    adapter: str | None
    attn_implementation: str | None
    trust_remote_code: bool | None
    engine: str | Engine | None
    grader: str | AnswerGrader | None


KNOWN = tuple(Options.__annotations__)
LOADING = tuple(name for name in LoadOptions.__annotations__ if name not in KNOWN)
REPLACING = tuple(name for name in KNOWN if name not in ("method", "preset", *FOR_ANY))
"""Options that replace a value or a part of a method."""


def loading(options: Mapping[str, Any]) -> tuple[dict[str, Any], Options]:
    """Return the options of loading, and those of a call.

    Raises:
        UserError: As :func:`checked`.
    """
    _check_known(options, "from_pretrained", (*KNOWN, *LOADING))
    given = {name: options[name] for name in LOADING if options.get(name) is not None}
    if not isinstance(dtype := given.get("dtype"), str | None):
        given["dtype"] = str(dtype).removeprefix("torch.")  # for an object such as torch.float32
    return given, checked({name: options[name] for name in KNOWN if name in options}, "from_pretrained")


def checked(options: Mapping[str, object], where: str) -> Options:
    """Return the options that are not None.

    Raises:
        UserError: For an unknown name, a method object without ``solve``, or an invalid limit, seed or stop.
    """
    _check_known(options, where, KNOWN)
    values = cast(Options, {name: value for name, value in options.items() if value is not None})
    Limits(values.get("max_tokens"), values.get("max_seconds"))
    whole("seed", values.get("seed", 0), least=0)
    whole("max_new_tokens", values.get("max_new_tokens", 1), least=1)
    texts("stop", values.get("stop", ()))
    if not isinstance(method := values.get("method"), str | None):
        check_method(method)
    return values


def check_of_points(options: Mapping[str, object]) -> None:
    """Refuse options that the reward of a point does not depend on."""
    of_rounds = ("max_tokens", "max_seconds", "k", "rounds", "acquisition", "stopping")
    known = [name for name in KNOWN if name not in of_rounds]
    given = {name: value for name, value in options.items() if value is not None}
    _check_known(given, "objective", ("gold", "negate", "noise_std", *known))


def _check_known(options: Mapping[str, object], where: str, known: Sequence[str]) -> None:
    for name in options:
        if name not in known:
            raise UserError(
                f"{where}: expected options among {', '.join(known)}, got {name}{near(name, known)}"
            )


def chosen_method(options: Options, setting: Setting, default: Method | None) -> Method:
    """Return the method that ``options`` choose, with the values and parts that they replace.

    Args:
        options: The options.
        setting: The defaults of methods and parts.
        default: The method where none is named; None is that of ``setting``.

    Raises:
        NoSuchOption: For an option that the method does not have.
        UserError: For an unknown name, and for a value that a class rejects.
    """
    named, preset = options.get("method"), options.get("preset")
    if (tokens := options.get("max_new_tokens")) is not None:
        setting = replace(setting, max_new_tokens=tokens)
    if preset not in (None, "default"):
        if named not in (None, "soft_reasoning"):
            raise NoSuchOption("preset", f"expected method=soft_reasoning, got {named}; leave preset out")
        method: Method = setting.preset(preset)
    elif isinstance(named, str):
        method = setting.build("method", named, **_required("method", named, options))
    else:
        method = named or default or setting.build("method")
    if tokens is not None:
        method = limited(method, tokens)
    return _replaced(method, options, setting)


def _replaced(method: Method, options: Options, setting: Setting) -> Method:
    """Return ``method`` with the values and the parts among ``options`` in their places.

    All are replaced at once, since a method checks them together: first parts, then values in them.
    """
    changes: dict[str, Any] = {}
    for name in sorted(options, key=lambda name: name not in PARTS):
        if name not in REPLACING or name == "probe" and options.get("verifier") == "probe":
            continue
        value, path = options[name], path_of(method, name)
        if name in PARTS and isinstance(value, str):
            value = setting.build(name, value, **_required(name, value, options))
        elif name == "verifier":
            value = as_verifier(value)
        check_part(value, name)
        _put(changes, method, path.split("."), value, name, method.name)
    try:
        return replace(cast(Any, method), **changes) if changes else method
    except OptionError as error:
        typed = next((name for name in options if path_of(method, name) == error.name), error.name)
        raise type(error)(typed, error.message) from error


def _required(group: str, name: str, options: Options) -> dict[str, Any]:
    """The options without a default that a choice needs, such as the point of ``soft_token``."""
    if name not in GROUPS[group]:
        return {}
    known = parameters(imported(GROUPS[group][name].target, group))
    return {key: options[key] for key in known if known[key].default is known[key].empty and key in options}


def _put(
    changes: dict[str, Any], part: object, path: Sequence[str], value: Any, name: str, method: str
) -> None:
    """Add to the ``changes`` of ``part`` a value at ``path``; ``name`` is its option in messages."""
    field, *rest = path
    if not is_dataclass(part) or field not in [known.name for known in fields(part)]:
        raise NoSuchOption(name, f"expected a method that reads it, got method={method}; leave {name} out")
    if rest:
        inside, inner = changes.get(field, getattr(part, field)), dict[str, Any]()
        if isinstance(inside, partial):  # an acquisition function's class with its arguments
            [argument] = rest
            if argument not in inside.keywords:
                raise NoSuchOption(name, f"expected an acquisition function that reads it; leave {name} out")
            value = partial(inside.func, **{**inside.keywords, argument: value})
        else:
            _put(inner, inside, rest, value, name, method)
            try:
                value = replace(inside, **inner)
            except OptionError as error:
                raise type(error)(name if error.name == rest[-1] else error.name, error.message) from error
    changes[field] = value


def path_of(method: Method, name: str) -> str:
    """Return the path of the field that an option sets."""
    return getattr(method, "short", {}).get(name.rstrip("_"), name)
