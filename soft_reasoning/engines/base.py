"""The engine seam: token ids in, tokens out. What only some engines offer is in ``engines.abilities``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from soft_reasoning.types import Completion, Request, UserError

Outcome: TypeAlias = Completion | Exception
"""How a request ends: complete, or with an error of its own."""


class Tokenizer(Protocol):
    """What is used of a tokenizer. Those of transformers have it."""

    eos_token_id: int | None
    all_special_ids: list[int]

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The token ids of ``text``."""
        ...

    def decode(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool = True,
    ) -> str:
        """The text of ``token_ids``."""
        ...


class Engine(Protocol):
    """Runs a frozen language model. It knows no reward, no search and no problem.

    Requests are queued by ``add`` and advanced together by ``step``. New ones join between two steps. The
    same request gets the same tokens alone, in any batch and in any order, on the CPU in float32. Elsewhere
    a sum's last bits may depend on the batch, and so how a near tie falls. All methods may be called from
    several threads. Text is decoded and cut at stop strings by ``engines.text``, so every engine gives the
    same text. ``engines.queue.QueueEngine`` implements the queue; what only some engines offer is in
    ``engines.abilities``.
    """

    tokenizer: Any
    """A :class:`Tokenizer`."""
    hidden_size: int
    """D, the width of an input embedding."""
    context_length: int
    """Most tokens (prompt, soft tokens and completion together) that the model can take."""
    embedding_rms: float
    """Root mean square over the entries of the embedding table, in the units of :meth:`embed`."""

    eos_ids: frozenset[int]
    """The tokens that end a completion."""

    def embed(self, ids: Sequence[int]) -> Tensor:
        """(len(ids), D) float32 on the CPU, as the model's own lookup returns it (scale included)."""
        ...

    def nearest_tokens(self, x: Tensor, count: int = 3) -> list[list[tuple[int, float]]]:
        """For each row of ``x`` (n, D) the ``count`` tokens of highest cosine similarity, best first."""
        ...

    def add(self, requests: Sequence[Request]) -> list[int]:
        """Queue ``requests``: a ticket for each.

        Nothing is queued if one is bad: UserError for a prompt that does not fit the context and for what
        the engine cannot give, ValueError for ids, soft tokens, positions and limits that no model can take.
        """
        ...

    def step(self, tickets: Collection[int] | None = None) -> list[tuple[int, Outcome]]:
        """Advance all requests by about one token, and return those of ``tickets`` that are complete.

        None stands for all. Works only if none of them is complete yet. What is complete is returned once.
        """
        ...

    def cancel(self, tickets: Collection[int]) -> None:
        """Drop ``tickets``, so far as they were not returned."""
        ...

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Complete ``requests``, in input order. Raises as ``add``, and the error that ends a request."""
        ...

    def begin_run(self) -> None:
        """Forget what earlier runs left, such as cached prompts."""
        ...

    def close(self) -> None:
        """Give memory and devices back; the engine is not used afterwards."""
        ...


@dataclass(frozen=True, eq=False)
class PreparedRequest:
    """A checked request, its prompt cut where the soft tokens go.

    The prompt is ``head`` token ids, then ``soft`` (m, D), then ``tail`` token ids. Without soft tokens all
    ids are in ``head``. ``max_new_tokens`` is what the request asks for, or less where the context ends.
    """

    request: Request
    head: tuple[int, ...]
    soft: Tensor | None
    tail: tuple[int, ...]
    max_new_tokens: int

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt, soft tokens included."""
        return len(self.head) + len(self.tail) + (0 if self.soft is None else len(self.soft))


def prepare(request: Request, hidden_size: int, context_length: int, vocabulary: int) -> PreparedRequest:
    """Check ``request`` against a model and cut its prompt at the soft tokens.

    Raises:
        UserError: the prompt does not fit the context.
        ValueError: ids, soft tokens, position or limits that no model could take.
    """
    ids, soft = tuple(request.prompt_ids), request.soft
    if request.max_new_tokens < 0 or (request.max_new_tokens == 0 and not request.reads):
        raise ValueError(
            f"expected max_new_tokens >= 1, or 0 to read only logits or states, got {request.max_new_tokens}"
        )
    if request.top_logprobs < 0:
        raise ValueError(f"expected top_logprobs >= 0, got {request.top_logprobs}")
    named = request.next_logits if isinstance(request.next_logits, tuple) else ()
    outside = [i for i in (*ids, *named) if not 0 <= i < vocabulary]
    if outside:
        raise ValueError(f"expected token ids in 0..{vocabulary - 1}, got {outside[0]}")
    position = len(ids)
    if soft is not None:
        if soft.ndim != 2 or soft.shape[0] == 0 or soft.shape[1] != hidden_size:
            raise ValueError(f"expected soft tokens (m, {hidden_size}), got {tuple(soft.shape)}")
        if not bool(torch.isfinite(soft).all()):
            raise ValueError("expected finite soft tokens, got NaN or infinity")
        position = len(ids) if request.position is None else request.position
        if not 0 <= position <= len(ids):
            raise ValueError(f"expected a position in 0..{len(ids)}, got {position}")
    elif not ids:
        raise ValueError("expected a prompt of at least one token, got none")
    length = len(ids) + (0 if soft is None else len(soft))
    if length >= context_length:
        raise UserError(
            f"expected a prompt shorter than the model's context of {context_length} tokens, got {length}; "
            "shorten the prompt, use fewer exemplars or a model with a longer context"
        )
    room = context_length - length
    return PreparedRequest(request, ids[:position], soft, ids[position:], min(request.max_new_tokens, room))
