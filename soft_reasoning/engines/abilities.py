"""What only some engines offer beyond text and logits, by name.

- ``hidden_states``: requests may read the last one; ``hidden_states`` and ``lm_head``.
- ``gradients``: ``lm_head_gradient`` and ``soft_gradient``.
- ``adjust``: requests may hold ``adjust``, which changes the logits that a token is chosen from.
- ``feed``: requests may hold ``feed``, which gives an embedding that is fed in place of the token's.

``engines.hidden_states.OpenModel`` has the functions. A method that cannot do without some lists them, as in
``needs = ("hidden_states",)``, and is refused on an engine that lacks one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from soft_reasoning.types import Request, UserError


def check_abilities(method: Any, engine: Any) -> None:
    """Raises UserError where ``method`` or a part of it needs an ability that ``engine`` lacks."""
    for part in (method, *getattr(method, "__dict__", {}).values()):
        _check(type(part).__name__, getattr(part, "needs", ()), engine)


def check_reads(request: Request, engine: Any) -> None:
    """Raises UserError where ``request`` asks for what ``engine`` cannot give."""
    asked = {"hidden_states": request.hidden_state, "adjust": request.adjust, "feed": request.feed}
    _check("this request", [name for name, value in asked.items() if value], engine)


def _check(what: str, needs: Iterable[str], engine: Any) -> None:
    if lacking := [name for name in needs if name not in engine.offers]:
        raise UserError(
            f"{what}: expected an engine with {' and '.join(lacking)}, got {type(engine).__name__} without; "
            f"use engine=hf, or leave {what} out"
        )
