"""The engine seam: token ids in, tokens out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from soft_reasoning.types import Completion, Prompt, Request


class Engine(Protocol):
    """Runs a frozen language model. It knows no reward, no search and no problem.

    The same request gets the same tokens alone, in any batch and in any order, on the CPU in float32.
    Elsewhere a sum's last bits may depend on the batch, and so how a near tie falls.
    Text is decoded and cut at stop strings by ``engines.text``, so every engine gives the same text.
    """

    tokenizer: object
    """A Hugging Face tokenizer (or one with its ``encode``, ``decode`` and id attributes)."""
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

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Complete ``requests``, in input order.

        Raises UserError for a prompt that does not fit the context, and ValueError for soft tokens that
        are not finite or not (m, D): both before any work is done.
        """
        ...

    def next_token_logits(
        self, prompts: Sequence[Prompt], ids: Sequence[int] | None = None, *, top: int | None = None
    ) -> tuple[Tensor, list[int]]:
        """(len(prompts), len(ids) or vocabulary) float32 logits of the token after each prompt, and how many
        tokens of each prompt were cached. ``top`` as in :class:`NextLogits`."""
        ...

    def nearest_tokens(self, x: Tensor, count: int = 3) -> list[list[tuple[int, float]]]:
        """For each row of ``x`` (n, D) the ``count`` tokens of highest cosine similarity, best first."""
        ...

    def close(self) -> None:
        """Give memory and devices back; the engine is not used afterwards."""
        ...


class StreamingEngine(Engine, Protocol):
    """An engine that takes work while it works, so that no request waits for another's end."""

    def submit(self, requests: Sequence[Request]) -> list[int]:
        """Take ``requests`` on: a ticket for each. Errors as in ``generate``, before any is taken."""
        ...

    def submit_prompts(
        self, prompts: Sequence[Prompt], ids: Sequence[int] | None = None, *, top: int | None = None
    ) -> list[int]:
        """Take ``prompts`` on, for the logits that follow them; as ``submit``."""
        ...

    def collect(self) -> list[tuple[int, Completion | tuple[Tensor, int]]]:
        """Work until something submitted is complete: tickets, in the order they came, with completions, or
        with a prompt's row of logits and how many of its tokens were cached.

        Empty once everything submitted was collected.
        """
        ...

    def cancel(self) -> None:
        """Drop everything submitted and not collected."""
        ...


class TellsMemory(Protocol):
    """An engine that says how much memory it holds."""

    @property
    def held_bytes(self) -> Mapping[str, int]:
        """Bytes held now: ``kv`` for keys and values, ``activations`` for all else but the weights."""
        ...

    @property
    def peak_bytes(self) -> Mapping[str, int]:
        """The most of each so far."""
        ...


@runtime_checkable
class NeuronActivations(Protocol):
    """An engine whose feed-forward neurons can be watched and masked."""

    def neurons(self) -> AbstractContextManager[Any]:
        """The model's ``engines.neurons.Neurons``, whose hooks are gone at the end.

        Raises UserError for a model whose feed-forward layers have no gate.
        """
        ...
