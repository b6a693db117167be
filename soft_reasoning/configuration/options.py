"""Options of Python and of the command line: how they become the keys of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, cast

from omegaconf import DictConfig, OmegaConf

from soft_reasoning.checks import whole
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.functions import Final, Score, Stop, Weigh
from soft_reasoning.rewards.verifiers import Verifier
from soft_reasoning.scheduling.context import Limits
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


def loading_settings(options: Mapping[str, Any]) -> tuple[dict[str, Any], Options]:
    """Return the keys of the configuration that the arguments of loading set, and the other options.

    Raises:
        UserError: As :func:`checked`.
    """
    _check_known(options, "from_pretrained", (*KNOWN, *LOADING))
    settings = {f"model.{name}": options[name] for name in LOADING if name in options}
    if "model.device" in settings:
        settings["engine.device"] = settings.pop("model.device")
    if not isinstance(dtype := settings.get("model.dtype"), str | None):
        settings["model.dtype"] = str(dtype).removeprefix("torch.")  # of an object such as torch.float32
    return settings, checked({name: options[name] for name in KNOWN if name in options}, "from_pretrained")


def checked(options: Mapping[str, Any], where: str) -> Options:
    """Return the options that are not None.

    Raises:
        UserError: For an unknown name, what is no method, and a bound, seed or stop text out of its range.
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
            raise UserError(f"{where}: expected options among {', '.join(known)}, got {name}")


def configured(options: Options, overrides: Sequence[str]) -> DictConfig:
    """Return the configuration of ``overrides`` with ``options``.

    Raises:
        UserError: For a value that does not exist, or an option that the method does not have.
    """
    words = [*overrides]
    for name in ("method", "preset", *PARTS, "max_new_tokens", *KEYS):
        value = options.get(name)
        if value is None:
            continue
        if name in (*PARTS, *KEYS) and not isinstance(options.get("method"), str | None):
            raise UserError(f"{name}: expected the name of a method, got an object; set it there")
        if isinstance(value, str) or name not in ("method", *PARTS):  # an object is put in its place later
            words.append(f"{'search.stopping.rule' if name == 'stopping' else name}={value}")
    return compose_config(spelled(words))


def spelled(overrides: Sequence[str]) -> list[str]:
    """Return ``overrides`` with ``k``, ``rounds`` and ``temperature`` as the keys of the method.

    Raises:
        UserError: For a method that lacks one of them, and in a comparison.
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
    made = [[word for key in short for word in _of_method(key, short[key], config)] for config in configs]
    if any(words != made[0] for words in made):
        raise UserError(f"{name}: expected methods that call it the same, got {', '.join(methods)}; sweep "
                        "over one of them at a time")  # fmt: skip
    return [*(word for word in overrides if word.partition("=")[0] not in KEYS), *made[0]]


def _of_method(name: str, value: str, config: DictConfig) -> list[str]:
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
    """Return the error for an option or a part that the method does not have."""
    return UserError(f"{name}: expected a method that has it, got method={method}; leave {name} out")


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
