"""The interface of an engine: token ids in, tokens out, with the queue that every engine has."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from threading import RLock
from typing import Any, TypeAlias

import torch
from torch import Tensor

from soft_reasoning.engine.completions import Replay
from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.engine.sampling import sample_tokens
from soft_reasoning.engine.text import StopChecker
from soft_reasoning.types import Completion, Request, UserError

Outcome: TypeAlias = Completion | Exception
"""How a request ends: complete, or with an error."""

CACHED_LOGITS = 2**19
"""Logits of the rows whose tokens are chosen together on the CPU."""

CHUNK = 8192
"""Number of embeddings converted to float32 at a time: a table of 128,000 tokens takes gigabytes there."""


class Engine:
    """Runs a frozen language model. It knows no reward, no search and no problem.

    Requests are queued by :meth:`add` and advanced together by :meth:`step`. New ones join between two steps.
    On the CPU in float32 a request gets the same tokens alone, in any batch and in any order. Elsewhere the
    last bits of a sum may depend on the batch, and so may the choice between two nearly equal logits. All
    methods may be called from several threads.

    A subclass sets the attributes below that have no value (:meth:`set_embeddings` sets some) and implements
    :meth:`advance`. ``queued`` maps the tickets of requests in progress to the running requests, in order of
    arrival. An engine with more state extends :class:`RunningRequest` (``running_type``, :meth:`prepare`),
    :meth:`begin` and :meth:`drop`. These are called by one thread at a time.
    """

    tokenizer: Any
    """A tokenizer with transformers' ``eos_token_id``, ``all_special_ids``, ``encode`` and ``decode``."""
    eos_ids: frozenset[int]
    """End-of-sequence tokens."""
    hidden_size: int
    """D, the width of an input embedding."""
    vocabulary: int
    """V, the number of tokens."""
    context_length: int
    """Maximum number of tokens: prompt, soft tokens and completion together."""
    embedding_rms: float
    """Root mean square over the entries of the embedding table, in the units of :meth:`embed`."""
    model: Any = None
    """A transformers model, perhaps without its weights, whose configuration and sizes can be read."""
    device: Any = None
    """Where the model is."""
    max_new_tokens: int | None = None
    """The limit on new tokens in the model's generation config, if any."""
    running_type: type[RunningRequest] = RunningRequest
    """What :meth:`prepare` makes of a request."""
    offers: frozenset[str] = frozenset({"ids", "rows", "logprobs", "logits"})
    """What requests and methods may need of it: the keys of ``ABILITIES`` that it has."""
    facts: Mapping[str, object] = {}
    """What a server said about itself: completions depend on it."""
    writes_in_turns: bool = False
    """Whether a deadline changes the random numbers of a sampled text."""
    batch_invariant: bool | None = None
    """Whether a test request gave the same bits alone as in a batch; None if this was not tested."""

    def __init__(self) -> None:
        self.lock: RLock = RLock()
        self.queued: dict[int, Any] = {}
        self.settings: Mapping[str, object] = {}  # from which the engine was built
        self.replay: Replay | None = None  # stored completions, which are not generated again
        self._tickets = itertools.count()
        self._outcomes: dict[int, Outcome] = {}  # of complete requests that were not returned yet

    @property
    def peak_bytes(self) -> Mapping[str, int]:
        """Peak bytes: ``kv`` for keys and values, ``activations`` for everything else but the weights."""
        return {}

    def set_embeddings(self, lookup: Callable[[Tensor], Tensor], weight: Tensor) -> None:
        """Set the embedding table, and the attributes that follow from it.

        Args:
            lookup: Token ids (1, n) to embeddings (1, n, D) as the model reads them (scale included).
            weight: (V, D) rows that ``lookup`` returns, up to a common scale.

        Raises:
            UserError: If an entry is NaN or infinite.
        """
        self._lookup, self._weight = lookup, weight
        self.vocabulary, self.hidden_size = len(weight), self.embed([0]).shape[1]
        total, count = 0.0, 0
        for start in range(0, self.vocabulary, CHUNK):
            chunk = self.embed(range(start, min(start + CHUNK, self.vocabulary))).double()
            broken = (~chunk.isfinite().all(-1)).nonzero().flatten()
            if len(broken):
                raise UserError(
                    "expected finite embeddings, got NaN or infinity in that of token "
                    f"{start + int(broken[0])}; the weights are damaged, or overflow in half precision: take "
                    "model.dtype=bfloat16"
                )
            total, count = total + float(chunk.square().sum()), count + chunk.numel()
        self.embedding_rms = (total / count) ** 0.5

    @torch.inference_mode()
    def embed(self, ids: Sequence[int]) -> Tensor:
        """(len(ids), D) float32 on the CPU, as the model's lookup returns it (scale included)."""
        rows = self._lookup(torch.tensor([list(ids)], dtype=torch.long, device=self._weight.device))[0]
        return rows.float().cpu().clone()

    @cached_property
    def _norms(self) -> Tensor:
        return torch.cat([chunk.float().norm(dim=-1) for chunk in self._weight.split(CHUNK)]).clamp_min(1e-12)

    @torch.inference_mode()
    def nearest_tokens(self, x: Tensor, count: int = 3) -> list[list[tuple[int, float]]]:
        """For each row of ``x`` (n, D) the ``count`` tokens of highest cosine similarity, best first."""
        x = torch.nn.functional.normalize(x.float().to(self._weight.device), dim=-1)
        cosines = torch.cat([x @ rows.float().T for rows in self._weight.split(CHUNK)], dim=-1) / self._norms
        best = cosines.topk(min(count, self.vocabulary), dim=-1)
        return [
            list(zip(tokens, values, strict=True))
            for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def add(self, requests: Sequence[Request]) -> list[int]:
        """Queue ``requests`` and return their tickets. If any request is invalid, none is queued.

        A stored completion is an outcome of the next step, without work.

        Raises:
            UserError: For a prompt that does not fit the context, or a feature that the engine lacks.
            ValueError: For ids, soft tokens, positions or limits that no model can take.
        """
        rows = self._prepared(requests)
        self._queue(rows)
        return list(rows)

    def step(self, tickets: Collection[int] | None = None) -> list[tuple[int, Outcome]]:
        """Advance all requests by about one token, and return the outcomes of complete ones of ``tickets``.

        None stands for all tickets. If any request of them is complete, it is returned without running the
        model. Each outcome is returned once.

        Raises:
            Exception: An error of the step, which also becomes the outcome of every request in progress.
        """
        with self.lock:
            if not self._complete(tickets) and self.queued:
                self._work()
            return [(ticket, self._outcomes.pop(ticket)) for ticket in self._complete(tickets)]

    def cancel(self, tickets: Collection[int]) -> None:
        """Drop those of ``tickets`` that were not returned yet."""
        with self.lock:
            self.drop(tickets)
            for ticket in tickets:
                self._outcomes.pop(ticket, None)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Complete ``requests``, in input order.

        Raises:
            Exception: The error of an invalid request, before any work, or the first that ends a request.
        """
        rows = self._prepared(requests)
        waiting, completions = set(rows), dict[int, Completion]()
        try:  # from before they are queued: an interruption leaves none behind
            self._queue(rows)
            while waiting:
                for ticket, outcome in self.step(waiting):
                    waiting.remove(ticket)
                    if isinstance(outcome, Exception):
                        raise outcome
                    completions[ticket] = outcome
        finally:
            self.cancel(waiting)
        return [completions[ticket] for ticket in rows]

    def begin_run(self) -> None:
        """Forget the state of earlier runs, such as cached prompts."""

    def close(self) -> None:
        """Release memory and devices; the engine cannot be used afterwards."""

    def prepare(self, request: Request, ticket: int = -1) -> Any:
        """Check ``request``, and return it as it will run; raises as :class:`RunningRequest`."""
        return self.running_type(
            ticket,
            request,
            hidden_size=self.hidden_size,
            context_length=self.context_length,
            vocabulary=self.vocabulary,
        )

    def begin(self, rows: dict[int, Any]) -> None:
        """Start work on ``rows``, by ticket."""
        self.queued.update(rows)

    def advance(self) -> Iterable[tuple[int, Outcome]]:
        """Compute one step; return the tickets that it completes, which are forgotten, with outcomes."""
        raise NotImplementedError

    def drop(self, tickets: Collection[int]) -> None:
        """Forget those requests of ``tickets`` that are in progress."""
        for ticket in tickets:
            self.queued.pop(ticket, None)
        if self.replay is not None:
            self.replay.forget(tickets)

    def extend(self, rows: Sequence[RunningRequest], logits: Tensor) -> dict[int, Outcome]:
        """Choose every row's next token from ``logits`` (R, V); return outcomes of rows that end.

        Each request's readings of the logits are stored.
        """
        # On the CPU: as many rows at a time as fit its cache, since there are several passes over them.
        at_once = (
            max(1, CACHED_LOGITS // logits.shape[-1]) if logits.device.type == "cpu" else max(1, len(rows))
        )
        outcomes = dict[int, Outcome]()
        for start in range(0, len(rows), at_once):
            outcomes |= self._extend(rows[start : start + at_once], logits[start : start + at_once].float())
        return outcomes

    def _extend(self, rows: Sequence[RunningRequest], logits: Tensor) -> dict[int, Outcome]:
        outcomes = dict[int, Outcome]()
        sampled = sample_tokens(logits, rows, sorted(self.eos_ids))
        for i, (row, (token, logprob, normaliser)) in enumerate(zip(rows, sampled, strict=True)):
            if not math.isfinite(normaliser):
                outcomes[row.ticket] = UserError(not_finite(self._weight.dtype))
                continue
            if row.request.reads:
                row.read(logits[i], normaliser)
            if not row.max_new_tokens:
                outcomes[row.ticket] = row.completion()
            elif completion := row.add(token, logprob, self.eos_ids, self.stops):
                outcomes[row.ticket] = completion
            elif row.grammar is not None and not row.grammar.consume_token(token):
                outcomes[row.ticket] = UserError(f"schema: {row.grammar.get_error()}")
        return outcomes

    @cached_property
    def stops(self) -> StopChecker:
        """Finds stop strings in the tokenizer's text."""
        return StopChecker(self.tokenizer)

    def _prepared(self, requests: Sequence[Request]) -> dict[int, Any]:
        if missing := frozenset[str]().union(*(request.needs for request in requests)) - self.offers:
            raise UserError(lacks(self, missing))
        with self.lock:
            return {row.ticket: row for row in [self.prepare(r, next(self._tickets)) for r in requests]}

    def _queue(self, rows: dict[int, Any]) -> None:
        with self.lock:
            stored = {} if self.replay is None else self.replay.begin(rows)
            self._outcomes.update(stored)
            self.begin({ticket: row for ticket, row in rows.items() if ticket not in stored})

    def _complete(self, tickets: Collection[int] | None) -> list[int]:
        if tickets is None:
            return list(self._outcomes)
        return [ticket for ticket in self._outcomes if ticket in tickets]

    def _work(self) -> None:
        try:
            outcomes = dict(self.advance())
            self._outcomes.update(outcomes)
            for ticket in outcomes:
                del self.queued[ticket]
        except BaseException as error:
            # Other threads wait for these requests, whose state in the engine may be half updated.
            failure = error if isinstance(error, Exception) else RuntimeError(f"interrupted by {error!r}")
            failed = list(self.queued)
            self.drop(failed)
            self._outcomes.update(dict.fromkeys(failed, failure))
            raise
        if self.replay is not None:
            self.replay.end(outcomes)


ABILITIES = {
    "ids": "prompts of token ids",
    "rows": "soft tokens (rows of embeddings)",
    "splices": "soft tokens within a text",
    "logprobs": "log-probabilities of tokens",
    "logits": "the logits of any token",
    "hidden_states": "hidden states",
    "schemas": "texts that fit a JSON Schema",
}
"""What an engine may offer, as messages name it."""


def lacks(engine: Engine, missing: Iterable[str]) -> str:
    """Return the error message for abilities that ``engine`` lacks."""
    named = " and ".join(ABILITIES[name] for name in sorted(missing))
    return (
        f"expected an engine with {named}, got {type(engine).__name__} without; use engine=hf, or another "
        "method (docs/engines.md has a table)"
    )


def not_finite(dtype: torch.dtype) -> str:
    """Return the error message for logits that are NaN or infinite."""
    advice = "model.dtype=bfloat16, which has float32's range" if dtype == torch.float16 else "other weights"
    return (
        f"expected finite logits, got NaN or infinity from a model in {str(dtype).removeprefix('torch.')}; "
        f"its numbers overflow or its weights are damaged: take {advice} or model.dtype=float32"
    )
