"""The values that flow between the layers: frozen and typed.

Problem -> Prompt -> Request -> Completion -> Candidate -> Result. Only :class:`Request` (soft tokens) and
:class:`Completion` (logits, hidden states) hold tensors. Everything stored is plain Python.
Importing this module does not import torch, which takes seconds, so wrong options are reported at once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from soft_reasoning.checks import UserError as UserError
from soft_reasoning.checks import real, shortened, whole

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def seed_for(seed: int, *stage: object) -> int:
    """Return a 63-bit seed for one stage of one problem: a hash of ``(run seed, problem id, stage, ...)``."""
    digest = hashlib.sha256(repr((int(seed), *map(str, stage))).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator_for(seed: int, *stage: object) -> torch.Generator:
    """Return a CPU generator seeded by :func:`seed_for`: the same stream on any machine, in any order."""
    import torch

    return torch.Generator().manual_seed(seed_for(seed, *stage))


@dataclass(frozen=True)
class Problem:
    """One row of a benchmark.

    Attributes:
        id: A unique id.
        question: The question.
        gold: The reference answer as text; None if unknown.
        answer_type: One of ``answers.ANSWER_TYPES``.
        doc: The row, which the store keeps.
        messages: (role, text) of the messages before the question in a chat.
        given: Complete prompt in place of the wording: a text, which the tokenizer encodes with its special
            tokens, or token ids.
        schema: A JSON Schema that each solution must fit; empty without one.
        place: Its place among the problems of a run, from 0.
    """

    id: str
    question: str
    gold: str | None = None
    answer_type: str = "number"
    doc: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)
    messages: tuple[tuple[str, str], ...] = ()
    given: str | tuple[int, ...] | None = None
    schema: str = ""
    place: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """The shortened id, for messages; a question from Python has its text as its id."""
        return shortened(self.id)

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of the question and its chat, up to white space and case."""
        texts = [*(text for _, text in self.messages), self.question]
        words = [" ".join(text.split()).casefold() for text in texts]
        return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]

    def without_gold(self) -> Problem:
        """Return the problem without its reference answer, for verifiers."""
        return replace(self, gold=None, doc={})


@dataclass(frozen=True)
class Prompt:
    """Token ids of a prompt, or its messages where the engine has no tokenizer.

    Attributes:
        ids: The token ids; none with messages.
        cue: Number of tokens at the end that cue the answer; soft tokens placed ``last`` follow the cue.
        stop: Strings that end a completion.
        max_new_tokens: Maximum number of tokens per completion; None uses the method's limit.
        thinks: Whether it ends in the model's thoughts.
        messages: The role and the text of each message.
        schema: A JSON Schema that the completion must fit.
    """

    ids: tuple[int, ...]
    cue: int = 0
    stop: tuple[str, ...] = ()
    max_new_tokens: int | None = None
    thinks: bool = False
    messages: tuple[tuple[str, str], ...] = ()
    schema: str = ""

    def request(self, **fields: Any) -> Request:
        """Return a request for a completion; ``fields`` add to those of the prompt, or replace them."""
        own: dict[str, Any] = {"messages": self.messages, "stop": self.stop, "thinks": self.thinks}
        if self.schema:
            own |= {"schema": self.schema, "schema_from": len(self.ids)}
        return Request(self.ids, **{**own, **fields})


MAX_NEW_TOKENS = 512
"""Default limit of a completion. The paper's 300 cut a tenth of the GSM8K solutions of small models."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen; greedily by default.

    Attributes:
        temperature: 0 is greedy.
        top_k: Number of likeliest tokens that are sampled from; 0 is off.
        top_p: Total probability of the likeliest tokens that are sampled from; 1 is off.
        first_temperature: Replaces ``temperature`` for the first token (FIRE).
        first_top_k: Replaces ``top_k`` for the first token (FIRE).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    first_temperature: float | None = None
    first_top_k: int | None = None

    def __post_init__(self) -> None:
        real("temperature", self.temperature, least=0.0)
        whole("top_k", self.top_k, least=0)
        real("top_p", self.top_p, above=0.0, most=1.0)
        if self.first_temperature is not None:
            real("first_temperature", self.first_temperature, least=0.0)
        if self.first_top_k is not None:
            whole("first_top_k", self.first_top_k, least=0)

    @property
    def needs(self) -> set[str]:
        """What it needs of an engine (``engine.base.ABILITIES``): a first token that is drawn here."""
        return set() if (self.first_temperature, self.first_top_k) == (None, None) else {"logprobs"}


GREEDY = Sampling()


@dataclass(frozen=True, eq=False)
class Request:
    """One completion to generate, and the values to read during generation.

    A request with ``max_new_tokens=0`` looks at a prompt: it costs one forward pass and generates nothing.

    Attributes:
        prompt_ids: Token ids of the prompt.
        soft: (m, D) soft tokens, scaled as the model's embedding lookup returns them, or None.
        position: Index in ``prompt_ids`` before which soft tokens are inserted; None puts them last.
        sampling: How tokens are chosen.
        max_new_tokens: Maximum number of generated tokens.
        min_new_tokens: Minimum number of generated tokens.
        stop: Strings that end the completion; they act in the answer, not in thoughts before it.
        thinks: Whether the prompt ends in thoughts.
        seed: Seed of sampling.
        role: Name for token counts: "candidate", "verifier", "anchor".
        deadline: Value of ``time.monotonic()`` after which the completion ends with its next token.
        turn: If not all requests fit, those of lower turns start first.
        next_logits: Whether to read the logits of the token after the prompt: all, or only of some ids.
        top_logprobs: Number of likeliest tokens to read at every generated token (without one, at the next).
        hidden_state: The share of the model's depth, above 0, after which to read the hidden state at the end
            of the prompt (``engine=hf``); None reads none.
        average_from: Index in ``prompt_ids`` from which the hidden states are averaged, too.
        messages: The prompt as in :class:`Prompt`, instead of ``prompt_ids``.
        schema: As in :class:`Prompt`.
        schema_from: Index in ``prompt_ids`` from which the text must fit ``schema``.
    """

    prompt_ids: tuple[int, ...]
    soft: Tensor | None = None
    position: int | None = None
    sampling: Sampling = GREEDY
    max_new_tokens: int = 300
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    thinks: bool = False
    seed: int = 0
    role: str = "candidate"
    deadline: float | None = None
    turn: int = 0
    next_logits: bool | tuple[int, ...] = False
    top_logprobs: int = 0
    hidden_state: float | None = None
    average_from: int | None = None
    messages: tuple[tuple[str, str], ...] = ()
    schema: str = ""
    schema_from: int = 0

    @property
    def reads(self) -> bool:
        """Whether it reads logits, log-probabilities or hidden states."""
        return self.next_logits is not False or self.top_logprobs > 0 or self.hidden_state is not None

    @property
    def needs(self) -> set[str]:
        """What it needs of an engine."""
        needs = {
            "rows": self.soft is not None,
            "logits": self.next_logits is not False,
            "logprobs": self.top_logprobs > 0,
            "hidden_states": self.hidden_state is not None,
            "schemas": bool(self.schema) and self.max_new_tokens > 0,
        }
        return {name for name, needed in needs.items() if needed}


class TopLogprobs(NamedTuple):
    """The likeliest tokens at one position, best first, and their raw log-probabilities."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


class FinishReason(StrEnum):
    """Why a completion ended. A value equals its text and is stored as its text."""

    STOP = "stop"
    """The model wrote a stop string."""
    EOS = "eos"
    """The model wrote an end-of-sequence token."""
    LENGTH = "length"
    """A limit of tokens or the end of the context cut it, or in an engine a deadline."""
    BUDGET = "budget"
    """The problem's budget cut it, or was spent before it began or before its next part."""


CUT = (FinishReason.LENGTH, FinishReason.BUDGET)
"""Reasons of completions that the model did not end."""


@dataclass(frozen=True)
class Completion:
    """A generated completion.

    Its tokens include the last token of a stop string or the end-of-sequence token, unlike its text.

    Attributes:
        token_ids: The generated tokens.
        logprobs: Their raw log-probabilities, from the log-softmax of the unscaled logits.
        text: The decoded text.
        finish_reason: Why it ended.
        prompt_tokens: Length of the prompt, soft tokens included.
        cached_tokens: Prompt tokens whose keys and values were reused.
        next_logits: (V,) or (len(ids),) float32 on the CPU, up to a constant, if the request asks for them.
        top_logprobs: An entry for each token, or a single entry if the request generates none.
        hidden_state: (D,) float32 on the CPU, after the layer that the request names; at depth 1 it is the
            input of the LM head, after the last norm. (2, D) if the request asks for an average, which is
            the second row.
        replayed: Whether it came from a store of completions.
        counted: The number of its tokens as a server counts them, where their ids are unknown.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int = 0
    next_logits: Tensor | None = field(default=None, repr=False, compare=False)
    top_logprobs: tuple[TopLogprobs, ...] = field(default=(), repr=False, compare=False)
    hidden_state: Tensor | None = field(default=None, repr=False, compare=False)
    replayed: bool = field(default=False, repr=False, compare=False)
    counted: int | None = None

    @property
    def generated_tokens(self) -> int:
        return len(self.token_ids) if self.counted is None else self.counted

    @property
    def cut(self) -> bool:
        """Whether a token limit or a budget ended it."""
        return self.finish_reason in CUT


@dataclass(frozen=True)
class Candidate:
    """One generated solution and its scores.

    Attributes:
        text: The solution; it begins with ``opening``.
        answer: The parsed answer, or None.
        round: The number of the round, from 0.
        coherence: The coherence of the tokens.
        verified: The verifier's score in [0, 1]; None without a verifier.
        reward: The reward; None if the method has no rewards.
        u: The point in the search space; None if the method has no search.
        generated_tokens: Number of generated tokens.
        finish_reason: A :class:`FinishReason`; empty if it is not one completion.
        agreement: The verifier's score before confidence; None means the same as ``verified``.
        opening: The text that stands for the soft tokens before the generated text; empty without them.
        computed: Whether the answer is a program's value, which no grader reads from the text.
        token_ids: Its tokens; empty if it is not one completion. They and ``logprobs`` are not stored.
        logprobs: Their log-probabilities, as in :class:`Completion`.
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
    opening: str = ""
    computed: bool = False
    token_ids: tuple[int, ...] = field(default=(), repr=False, compare=False)
    logprobs: tuple[float, ...] = field(default=(), repr=False, compare=False)

    @property
    def written(self) -> str:
        """The generated text: ``text`` after ``opening``."""
        return self.text[len(self.opening) :]

    @property
    def judged(self) -> float | None:
        """The verifier's score before confidence; None if it was not judged."""
        return self.verified if self.agreement is None else self.agreement

    @property
    def rank(self) -> float:
        """Its reward; candidates without a reward rank last."""
        return -math.inf if self.reward is None else self.reward

    @property
    def cut(self) -> bool:
        """Whether a token limit or a budget ended it."""
        return self.finish_reason in CUT

    def __repr__(self) -> str:
        scores = (("reward", self.reward), ("verified", self.verified), ("coherence", self.coherence))
        shown = "".join(f", {name}={value:.3g}" for name, value in scores if value is not None)
        text = shortened(" ".join(self.text.split()))
        return f"Candidate({self.answer!r}, round={self.round}{shown}, text={text!r})"

    def stored(self) -> dict[str, Any]:
        """Return its stored values by name."""
        left_out = ("token_ids", "logprobs")
        return {part.name: getattr(self, part.name) for part in fields(self) if part.name not in left_out}


@dataclass(frozen=True)
class Usage:
    """Token and sequence counts of one role.

    A completion from a store counts like a generated one, so the counts are what a method costs.
    ``replayed_tokens`` are the generated tokens that came from a store and cost nothing now.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    sequences: int = 0
    replayed_tokens: int = 0

    @classmethod
    def of(cls, prompt: int, cached: int = 0, generated: int = 0, *, replayed: bool = False) -> Usage:
        """Return the usage of one sequence."""
        return cls(prompt, cached, generated, 1, generated if replayed else 0)

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Result:
    """A method's answer to one problem.

    Attributes:
        answer: The final answer; None if nothing could be parsed.
        candidates: Every candidate.
        trace: One entry of plain values per round.
        usage: Token counts by role, which the scheduler fills in.
        prompt: The first candidate's prompt, with special tokens, split where soft tokens are inserted. The
            scheduler fills it in.
        thinks: Whether that prompt ends in thoughts. The scheduler fills it in.
        spent: The budget that cut candidates, "max_tokens" or "max_seconds". The scheduler fills it in.
    """

    answer: str | None
    candidates: tuple[Candidate, ...]
    trace: tuple[Mapping[str, Any], ...] = ()
    usage: Mapping[str, Usage] = field(default_factory=dict[str, Usage])
    prompt: tuple[str, ...] = ()
    thinks: bool = False
    spent: str | None = None
