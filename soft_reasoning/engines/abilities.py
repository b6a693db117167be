"""What some engines offer beyond ``engines.base.Engine``. A caller asks by type: ``isinstance(engine, ...)``.

A method that cannot do without one lists it in ``needs``, and is refused on an engine that lacks it:

    class Probe:
        name = "probe"
        needs = (HiddenStates,)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from soft_reasoning.types import Request, UserError


@runtime_checkable
class TellsMemory(Protocol):
    """Says how much memory it used."""

    @property
    def peak_bytes(self) -> Mapping[str, int]:
        """The most bytes so far: ``kv`` for keys and values, ``activations`` for all else but the weights."""
        ...


@runtime_checkable
class ShowsModel(Protocol):
    """Has a transformers model, perhaps without its weights, whose configuration and sizes can be read."""

    @property
    def model(self) -> Any: ...

    @property
    def device(self) -> Any: ...


@runtime_checkable
class HiddenStates(Protocol):
    """Its last hidden states can be read, here at all positions and at a prompt's end in any request."""

    def hidden_states(self, requests: Sequence[Request]) -> list[Tensor]:
        """(n, D) float32 on the CPU for each request: the states after the last layer and norm.

        They are those of its prompt, soft tokens included. Nothing is generated.
        """
        ...


@runtime_checkable
class LMHead(Protocol):
    """Its LM head can be applied to states."""

    def lm_head(self, states: Tensor) -> Tensor:
        """(n, vocabulary) float32 on the CPU: the output of the LM head for ``states`` (n, D).

        These are the next token's logits, scaled and capped as the model's configuration says.
        """
        ...


@runtime_checkable
class SoftTokenGradients(Protocol):
    """Functions of its logits can be differentiated with respect to soft tokens."""

    def soft_gradient(self, request: Request, objective: Callable[[Tensor], Tensor]) -> tuple[float, Tensor]:
        """Differentiate a function of the logits after ``request``'s soft tokens.

        Args:
            request: Holds soft tokens (m, D).
            objective: Maps float32 logits (n, vocabulary), one row for each position from the first soft
                token to the end of the prompt, to a scalar.

        Returns:
            Its value, and its gradient (m, D) float32 on the CPU.
        """
        ...


@runtime_checkable
class LMHeadGradients(Protocol):
    """Functions of the LM head's output can be differentiated with respect to the states."""

    lm_head_share: float
    """The LM head's share of the model's parameters, for estimates of operations."""

    def lm_head_gradient(
        self, states: Tensor, objective: Callable[[Tensor, slice], Tensor]
    ) -> tuple[float, Tensor]:
        """Differentiate a sum over rows of the logits of ``states`` (n, D).

        Args:
            states: States after the last layer and norm.
            objective: Maps the logits (m, vocabulary) of some rows, and which rows they are, to a scalar.
                It is called for parts of the rows, so that memory is bounded, and the results are added.

        Returns:
            The sum, and its gradient (n, D) float32 on the CPU.
        """
        ...


@runtime_checkable
class AdjustsLogits(Protocol):
    """Its requests may hold ``adjust``: the logits that a token is chosen from are changed at every step."""

    adjusts_logits: bool


@runtime_checkable
class FeedsEmbeddings(Protocol):
    """Its requests may hold ``feed``: an embedding is fed at every step in place of the token's."""

    feeds_embeddings: bool


@runtime_checkable
class NeedsAbilities(Protocol):
    """A method, or a part of one, that works only on engines with certain abilities."""

    needs: tuple[type, ...]


def check_abilities(method: Any, engine: Any) -> None:
    """Raises UserError where ``method`` or a part of it needs an ability that ``engine`` lacks."""
    for part in (method, *getattr(method, "__dict__", {}).values()):
        if isinstance(part, NeedsAbilities):
            lacking = [ability.__name__ for ability in part.needs if not isinstance(engine, ability)]
            if lacking:
                raise UserError(lack(type(part).__name__, engine, *lacking))


def check_reads(request: Request, engine: Any) -> None:
    """Raises UserError where ``request`` asks for what ``engine`` cannot give."""
    asks = (
        (request.hidden_state, HiddenStates),
        (request.adjust, AdjustsLogits),
        (request.feed, FeedsEmbeddings),
    )
    for asked, ability in asks:
        if asked and not isinstance(engine, ability):
            raise UserError(lack("this request", engine, ability.__name__))


def lack(what: str, engine: Any, *abilities: str) -> str:
    """Return the message that ``engine`` lacks the ``abilities`` that ``what`` needs."""
    return (
        f"{what}: expected an engine with {' and '.join(abilities)}, got {type(engine).__name__} without; "
        f"use engine=hf, or leave {what} out"
    )
