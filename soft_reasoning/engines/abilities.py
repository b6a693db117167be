"""What some engines offer beyond ``engines.base.Engine``. A caller asks by type: ``isinstance(engine, ...)``.

A method that cannot do without one lists it in ``needs``, and is refused on an engine that lacks it:

    class Probe:
        name = "probe"
        needs = (LastHiddenStates,)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from soft_reasoning.types import Prompt, UserError


@runtime_checkable
class TellsMemory(Protocol):
    """Says how much memory it uses."""

    @property
    def used_bytes(self) -> Mapping[str, int]:
        """Bytes in use: ``kv`` for keys and values, ``activations`` for all else but the weights."""
        ...

    @property
    def peak_bytes(self) -> Mapping[str, int]:
        """The most of each so far."""
        ...


@runtime_checkable
class ShowsModel(Protocol):
    """Has a transformers model, perhaps without its weights, whose configuration and sizes can be read."""

    @property
    def model(self) -> Any: ...

    @property
    def device(self) -> Any: ...


@runtime_checkable
class LastHiddenStates(Protocol):
    """Its last hidden states can be read, and its LM head applied to them."""

    def last_hidden_states(self, prompts: Sequence[Prompt]) -> Tensor:
        """(len(prompts), D) float32 on the CPU: the state after the last layer and norm.

        It is that at the last token of each prompt.
        """
        ...

    def lm_head(self, states: Tensor) -> Tensor:
        """(n, vocabulary) float32 on the CPU: the output of the LM head for ``states`` (n, D).

        These are the next token's logits, unless the model bends them afterwards, as Gemma 2 does.
        """
        ...


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
                raise UserError(
                    f"{type(part).__name__}: expected an engine with {' and '.join(lacking)}, got "
                    f"{type(engine).__name__} without; use engine=hf, or leave {type(part).__name__} out"
                )
