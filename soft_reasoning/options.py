"""What people change from call to call, and how that becomes a configuration."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict, cast

from omegaconf import DictConfig, OmegaConf

from soft_reasoning.checks import real
from soft_reasoning.config import compose_config, override
from soft_reasoning.methods.base import Method
from soft_reasoning.types import UserError

OF_RUNS = (
    "budget", "dataset.limit", "dataset.offset", "dataset.sample", "fresh", "hydra", "label", "launcher",
    "limit", "ray",
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

    They are those of :class:`~soft_reasoning.SoftReasoner`, whose values hold unless others are given here.
    """

    method: str | Method
    preset: str
    k: int
    rounds: int
    max_tokens: int
    max_seconds: float
    temperature: float


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
    """

    method: str | Method | None = None
    preset: str | None = None
    k: int | None = None
    rounds: int | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    temperature: float | None = None

    @property
    def key(self) -> Hashable:
        """What tells options apart; a method object need not be hashable."""
        method = self.method
        return replace(self, method=None), method if isinstance(method, str | None) else id(method)

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
    if options.max_tokens is not None:
        begun.append(override("max_tokens", options.max_tokens))
    if options.max_seconds is not None:
        begun.append(override("max_seconds", options.max_seconds))
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
