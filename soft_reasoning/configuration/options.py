"""What people change from call to call, and how that becomes a configuration."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict, cast

from omegaconf import DictConfig, OmegaConf

from soft_reasoning.checks import real, whole
from soft_reasoning.configuration.compose import compose_config, override
from soft_reasoning.context import Context, Limits
from soft_reasoning.methods.base import Method
from soft_reasoning.types import UserError

OF_RUNS = (
    "budget", "dataset.limit", "dataset.offset", "dataset.sample", "fresh", "hydra", "label", "launcher",
    "limit", "logging", "ray",
)  # fmt: skip
"""What only a run of a data set reads."""

COUNTS = ("search.candidates", "method.samples", "method.paths", "method.candidates")
"""Where methods have k, the first that is there."""

OF_METHODS = (
    "method", "preset", "embedding", "search", "surrogate", "acquisition", "candidate_points", "batch",
    "verifier", "reward", "final", "decoding",
)  # fmt: skip
"""Groups whose overrides belong to one method."""


class Changes(TypedDict, total=False):
    """Keyword arguments of a call.

    Those of :class:`~soft_reasoning.SoftReasoner`, whose values hold unless others are given here, and
    ``max_new_tokens`` and ``stop``.
    """

    method: str | Method
    preset: str
    k: int
    rounds: int
    max_tokens: int
    max_seconds: float
    temperature: float
    seed: int
    max_new_tokens: int
    stop: Sequence[str]


@dataclass(frozen=True)
class Options:
    """What a question is solved with; None is the method's default.

    Attributes:
        method: A method's name, or an object of one's own.
        preset: Which parts Soft Reasoning has.
        k: Candidates of a round, or samples.
        rounds: Rounds after the first.
        max_tokens: Most generated tokens per question.
        max_seconds: Most seconds per question.
        temperature: Sampling temperature of the candidates; 0 is greedy.
        seed: Seed of every draw.
        max_new_tokens: Most tokens of each completion, a candidate's or the verifier's.
        stop: More texts that end a candidate.

    Raises:
        UserError: For a bound, a seed or a stop text out of its range.
    """

    method: str | Method | None = None
    preset: str | None = None
    k: int | None = None
    rounds: int | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    temperature: float | None = None
    seed: int | None = None
    max_new_tokens: int | None = None
    stop: Sequence[str] = ()

    def __post_init__(self) -> None:
        Limits(self.max_tokens, self.max_seconds)
        if self.seed is not None:
            whole("seed", self.seed, least=0)
        if not _are_texts(self.stop) or not all(self.stop):
            raise UserError(f"stop: expected a list of texts, none of them empty, got {self.stop!r:.80}")

    @property
    def key(self) -> Hashable:
        """What the parts depend on; a method object need not be hashable."""
        method = self.method if isinstance(self.method, str | None) else id(self.method)
        return method, self.preset, self.k, self.rounds, self.temperature, self.max_new_tokens

    def applied(self, context: Context) -> Context:
        """Return ``context`` with the bounds, the seed and the stop texts."""
        limits = Limits(
            context.limits.max_tokens if self.max_tokens is None else self.max_tokens,
            context.limits.max_seconds if self.max_seconds is None else self.max_seconds,
        )
        prompts = context.prompts.stopping_at(self.stop) if self.stop else context.prompts
        seed = context.seed if self.seed is None else self.seed
        return replace(context, limits=limits, prompts=prompts, seed=seed)

    def changed(self, changes: Changes) -> Options:
        """Return the options of a call; with another method, what belongs to this one is not kept."""
        known = [one.name for one in fields(Options)]
        for name in changes:
            if name not in known:
                raise UserError(f"solve: expected options among {', '.join(known)}, got {name}")
        kept = self
        if changes.get("method") not in (None, self.method):
            kept = Options(max_tokens=self.max_tokens, max_seconds=self.max_seconds)
        return replace(kept, **{name: value for name, value in changes.items() if value is not None})


def configured(options: Options, overrides: Sequence[str]) -> DictConfig:
    """Return the configuration of ``overrides`` with ``options``.

    Raises:
        UserError: For a value that does not exist, or an option that the method does not have.
    """
    named = options.method if isinstance(options.method, str) else None
    chosen = [f"{key}={value}" for key, value in (("method", named), ("preset", options.preset)) if value]
    begun = [*overrides, *chosen]
    if options.max_new_tokens is not None:
        begun.append(override("max_new_tokens", whole("max_new_tokens", options.max_new_tokens, least=1)))
    config = compose_config(begun)
    more: list[str] = []
    if options.k is not None:
        more.append(override(_key("k", COUNTS, config, options), options.k))
    if options.rounds is not None:
        more.append(override(_key("rounds", ("search.rounds",), config, options), options.rounds))
    if options.temperature is not None:
        more += _temperature(options, config)
    return compose_config([*begun, *more]) if more else config


def _key(name: str, keys: Sequence[str], config: DictConfig, options: Options) -> str:
    if isinstance(options.method, str | None):
        for key in keys:
            if OmegaConf.select(config, key) is not None:
                return key
        raise UserError(f"{name}: expected a method that has it, got method={config.method.name}; "
                        f"leave {name} out")  # fmt: skip
    raise UserError(f"{name}: expected the name of a method, got an object; set it there")


def _temperature(options: Options, config: DictConfig) -> list[str]:
    value = real("temperature", options.temperature, least=0.0)
    if "decoding" in config and isinstance(options.method, str | None):
        return ["decoding=sampled", f"decoding.temperature={value}"] if value else ["decoding=greedy"]
    if not value and "temperature" not in config.method and "verifier" not in config:
        return []  # greedy in any case
    return [override(_key("temperature", ("method.temperature",), config, options), value)]


def without_parts(overrides: Sequence[str]) -> list[str]:
    """Return ``overrides`` without those of the parts of a method."""

    def root(one: str) -> str:
        key: Any = one.lstrip("+~").partition("=")[0]
        return key.replace("/", ".").partition(".")[0]

    return [one for one in overrides if root(one) not in OF_METHODS]


def check_overrides(overrides: Any) -> None:
    """Check that ``overrides`` is a list of texts, none of which only a run of a data set reads.

    Raises:
        UserError: Otherwise.
    """
    if not _are_texts(overrides):
        raise UserError(f'overrides: expected a list such as ["method=cot"], got {overrides!r}')
    for one in overrides:
        key = one.lstrip("+~").partition("=")[0]
        if any(key == known or key.startswith((f"{known}.", f"{known}/")) for known in OF_RUNS):
            raise UserError(f"overrides: expected what solving a question takes, got {one}, which only "
                            "soft-reasoning run reads; leave it out")  # fmt: skip


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in cast(list[Any], value))
