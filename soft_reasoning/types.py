"""The values that flow between the layers: frozen, typed, free of behaviour.

Problem -> Prompt -> Request -> Completion -> Candidate -> Result. Tensors appear only in
:class:`Request` (the soft tokens); everything that is stored is plain Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor


class UserError(Exception):
    """A fault that the user can fix, in one line: what was expected, what came, and how to fix it."""


def seed_for(seed: int, *stage: object) -> int:
    """A 63-bit seed for one stage of one problem: a hash of ``(run seed, problem id, stage, ...)``."""
    digest = hashlib.sha256(repr((int(seed), *map(str, stage))).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator_for(seed: int, *stage: object) -> torch.Generator:
    """A CPU generator seeded by :func:`seed_for`; never global state.

    The same arguments give the same stream on every machine and in every order of calls.
    """
    return torch.Generator().manual_seed(seed_for(seed, *stage))


@dataclass(frozen=True)
class Problem:
    """One row of a benchmark.

    ``gold`` is the reference answer as text (``None`` when unknown, as for a user's own question);
    ``doc`` the row as it came, kept for the store. ``answer_type`` is one of ``answers.ANSWER_TYPES``.
    """

    id: str
    question: str
    gold: str | None = None
    answer_type: str = "number"
    doc: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)

    @property
    def name(self) -> str:
        """The id as messages show it; that of a user's own question is the question itself."""
        return self.id if len(self.id) <= 60 else f"{self.id[:57]}..."

    def without_gold(self) -> Problem:
        """The problem as a verifier may see it."""
        return replace(self, gold=None, doc={})


@dataclass(frozen=True)
class Prompt:
    """Token ids of a prompt.

    ``cue`` counts the tokens at the end that cue the answer; soft tokens placed ``last`` follow them.
    """

    ids: tuple[int, ...]
    cue: int = 0

    def followed_by(self, ids: tuple[int, ...]) -> Prompt:
        """The prompt with ``ids`` of its answer behind it."""
        return Prompt(self.ids + ids)


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn; the default is greedy. ``top_k = 0`` and ``top_p = 1`` are off.

    ``first_temperature`` and ``first_top_k`` replace ``temperature`` and ``top_k`` for the first token
    only (FIRE).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    first_temperature: float | None = None
    first_top_k: int | None = None


GREEDY = Sampling()


@dataclass(frozen=True, eq=False)
class Request:
    """One generation.

    ``soft`` (m, D): embeddings inserted before ``prompt_ids[position]``; ``position = len(prompt_ids)``
    puts them last. They are passed as the model's own lookup returns embeddings. ``seed`` feeds sampling;
    greedy requests ignore it. ``role`` names who asked ("candidate", "verifier", "anchor"), for the
    accounting alone.
    """

    prompt_ids: tuple[int, ...]
    soft: Tensor | None = None
    position: int | None = None
    sampling: Sampling = GREEDY
    max_new_tokens: int = 300
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    seed: int = 0
    role: str = "candidate"


@dataclass(frozen=True)
class Completion:
    """What a model wrote: ``token_ids`` and their raw log-probabilities (log-softmax of the unscaled
    logits), both of the same length, up to and including the token that completed a stop string or the
    end-of-sequence token; ``text`` is decoded and cut before either.

    ``finish_reason`` is ``stop`` (a stop string), ``eos`` or ``length``. ``prompt_tokens`` counts the
    whole prompt, soft tokens included; ``cached_tokens`` those of it whose keys and values were reused;
    ``recomputed_tokens`` positions that an engine which writes in several turns computed once more.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int = 0
    recomputed_tokens: int = 0

    @property
    def generated_tokens(self) -> int:
        return len(self.token_ids)


class Effect:
    """What a method yields; the function that ``effects.answers`` registers for its type answers it."""


@dataclass(frozen=True)
class Generate(Effect):
    """Complete these requests; answered by a list of :class:`Completion`."""

    requests: Sequence[Request]


@dataclass(frozen=True)
class NextLogits(Effect):
    """Next-token logits after each prompt, for the token ids in ``ids`` (all if None).

    Answered by a float32 tensor (len(prompts), len(ids) or vocabulary). With ``top``, only the differences
    between so many of the likeliest tokens need be right, and the others may have minus infinity.
    """

    prompts: Sequence[Prompt]
    ids: tuple[int, ...] | None = None
    role: str = "candidate"
    top: int | None = None


@dataclass(frozen=True, eq=False)
class Propose(Effect):
    """The next ``k`` points given what was seen; answered by a ``search.Proposal``.

    ``U`` (n, d) float64, ``y`` (n,) float64 rewards, ``seed`` and ``round`` the stream to draw
    candidate points from (shared by all problems of a run).
    """

    optimiser: Any
    U: Tensor
    y: Tensor
    k: int
    round: int
    seed: int


@dataclass(frozen=True)
class Candidate:
    """One generated solution and all that was found out about it.

    ``u`` is its point in the search space (``None`` where the method has none); ``verified`` the
    verifier's score in [0, 1] (``None`` without a verifier) and ``agreement`` that before confidence
    (``None``: the same); ``reward`` what the optimiser was told.
    """

    text: str
    answer: str | None
    round: int
    coherence: float | None = None
    verified: float | None = None
    reward: float | None = None
    u: tuple[float, ...] | None = None
    generated_tokens: int = 0
    finish_reason: str = ""
    agreement: float | None = None


@dataclass(frozen=True)
class Usage:
    """Token and sequence counts of one role. ``attended`` counts keys: for every position computed (not
    cached) those that a causal model attends to, itself included; for one computed again the prompt's."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    sequences: int = 0
    attended: int = 0
    recomputed_tokens: int = 0

    @classmethod
    def of(cls, prompt: int, cached: int = 0, generated: int = 0, recomputed: int = 0) -> Usage:
        """That of one sequence."""
        end = prompt + generated
        attended = (end * (end + 1) - cached * (cached + 1)) // 2 + recomputed * prompt
        return cls(prompt, cached, generated, 1, attended, recomputed)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.generated_tokens + other.generated_tokens,
            self.sequences + other.sequences,
            self.attended + other.attended,
            self.recomputed_tokens + other.recomputed_tokens,
        )


@dataclass(frozen=True)
class Result:
    """A method's answer to one problem: ``answer`` (``None`` when nothing could be parsed), every
    candidate, and a ``trace`` of plain values (one entry a round, readable from JSON)."""

    answer: str | None
    candidates: tuple[Candidate, ...]
    trace: tuple[Mapping[str, Any], ...] = ()
    usage: Mapping[str, Usage] = field(default_factory=dict[str, Usage])
