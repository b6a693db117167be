"""What some engines offer beyond ``engines.base.Engine``. A caller asks by type: ``isinstance(engine, ...)``.

A method that cannot do without one lists it in ``needs``, and is refused on an engine that lacks it:

    class Probe:
        name = "probe"
        needs = (HiddenStates,)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from soft_reasoning.types import Request, UserError


@runtime_checkable
class HiddenStates(Protocol):
    """Its last hidden states can be read: here at all positions, by ``Request.hidden_state`` at the end."""

    def hidden_states(self, requests: Sequence[Request]) -> list[Tensor]:
        """(n, D) float32 on the CPU for each prompt, soft tokens included: the states after the last norm."""
        ...


@runtime_checkable
class LMHead(Protocol):
    """Its LM head can be applied to states, and differentiated, without the rest of the model."""

    @property
    def lm_head_share(self) -> float:
        """The LM head's share of the weights that a position meets, for estimates of operations."""
        ...

    def lm_head(self, states: Tensor) -> Tensor:
        """(n, vocabulary) float32 on the CPU: the next token's logits for ``states`` (n, D).

        They are scaled and capped as the model's configuration says.
        """
        ...

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
class SoftTokenGradients(Protocol):
    """Functions of its logits can be differentiated with respect to soft tokens, through the whole model."""

    def soft_gradient(self, request: Request, objective: Callable[[Tensor], Tensor]) -> tuple[float, Tensor]:
        """Differentiate a function of the logits after ``request``'s soft tokens.

        Args:
            request: Holds soft tokens (m, D).
            objective: Maps float32 logits (n, vocabulary), one row for each position from the first soft
                token to the end of the prompt, to a scalar.

        Returns:
            Its value, and its gradient (m, D) float32 on the CPU.

        Raises:
            ValueError: If ``request`` holds no soft tokens.
        """
        ...


@runtime_checkable
class AdjustsLogits(Protocol):
    """Its requests may hold ``adjust``, which changes the logits (V,) that each token is chosen from."""

    adjusts_logits: bool


@runtime_checkable
class FeedsEmbeddings(Protocol):
    """Its requests may hold ``feed``, which gives an embedding (D,) that is fed in place of each token's."""

    feeds_embeddings: bool


def check_abilities(method: Any, engine: Any) -> None:
    """Raises UserError where ``method`` or a part of it needs an ability that ``engine`` lacks."""
    for part in (method, *getattr(method, "__dict__", {}).values()):
        _check(type(part).__name__, getattr(part, "needs", ()), engine)


def check_reads(request: Request, engine: Any) -> None:
    """Raises UserError where ``request`` asks for what ``engine`` cannot give."""
    asked = {HiddenStates: request.hidden_state, AdjustsLogits: request.adjust, FeedsEmbeddings: request.feed}
    _check("this request", [ability for ability, value in asked.items() if value], engine)


def _check(what: str, needs: Iterable[type], engine: Any) -> None:
    if lacking := [ability.__name__ for ability in needs if not isinstance(engine, ability)]:
        raise UserError(
            f"{what}: expected an engine with {' and '.join(lacking)}, got {type(engine).__name__} without; "
            f"use engine=hf, or leave {what} out"
        )
