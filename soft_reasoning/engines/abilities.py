"""Abilities of some engines beyond ``engines.base.Engine``; :func:`offers` says whether one has an ability.

A method that needs an ability lists it in ``needs``, and is rejected with an engine that lacks it:

    class Probe:
        name = "probe"
        needs = (HiddenStates,)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from soft_reasoning.types import Request, UserError


@runtime_checkable
class HiddenStates(Protocol):
    """Reads last hidden states: here at all positions, with ``Request.hidden_state`` at the last one."""

    def hidden_states(self, requests: Sequence[Request]) -> list[Tensor]:
        """(n, D) float32 on the CPU for each prompt, with soft tokens: the states after the last norm."""
        ...


@runtime_checkable
class LMHead(Protocol):
    """Applies and differentiates the LM head on states, without the rest of the model."""

    @property
    def lm_head_share(self) -> float:
        """The LM head's share of the weights used at a position, for estimates of operations."""
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
            objective: Maps the logits (m, vocabulary) of some rows, and the slice of these rows, to a scalar.
                It is called for parts of the rows, so that memory is bounded, and the results are added.

        Returns:
            The sum, and its gradient (n, D) float32 on the CPU.
        """
        ...


@runtime_checkable
class SoftTokenGradients(Protocol):
    """Differentiates functions of the logits with respect to soft tokens, through the whole model."""

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
    """Takes requests with ``adjust``, which changes the logits (V,) that each token is chosen from."""

    adjusts_logits: bool


@runtime_checkable
class FeedsEmbeddings(Protocol):
    """Takes requests with ``feed``, which returns an embedding (D,) that replaces each token's."""

    feeds_embeddings: bool


def offers(engine: Any, ability: type) -> bool:
    """Whether ``engine`` has an ability: all its methods, and a true value of each attribute.

    With a method that is None or an attribute that is False an engine disables an ability of its base class.
    """
    if not getattr(ability, "_is_protocol", False):
        return isinstance(engine, ability)
    methods = [name for name in vars(ability) if not name.startswith("_")]
    held = all(inspect.getattr_static(engine, name, None) is not None for name in methods)
    return held and all(getattr(engine, name, False) for name in ability.__annotations__)


def check_abilities(method: Any, engine: Any) -> None:
    """Raises UserError where ``method`` or a part of it needs an ability that ``engine`` lacks."""
    for part in (method, *getattr(method, "__dict__", {}).values()):
        _check(type(part).__name__, getattr(part, "needs", ()), engine)


def check_request_abilities(request: Request, engine: Any) -> None:
    """Raises UserError where ``request`` needs an ability that ``engine`` lacks."""
    uses = {HiddenStates: request.hidden_state, AdjustsLogits: request.adjust, FeedsEmbeddings: request.feed}
    _check("this request", [ability for ability, value in uses.items() if value], engine)


def _check(user: str, needs: Iterable[type], engine: Any) -> None:
    if lacking := [ability.__name__ for ability in needs if not offers(engine, ability)]:
        raise UserError(
            f"{user}: expected an engine with {' and '.join(lacking)}, got {type(engine).__name__}; "
            f"use engine=hf, or leave {user} out"
        )
