"""Better answers from a frozen language model, by searching over one input embedding."""

from importlib import import_module
from typing import TYPE_CHECKING

from soft_reasoning.commands.starting import reproducible_products, start

if TYPE_CHECKING:
    from soft_reasoning.api import SoftReasoner
    from soft_reasoning.data.questions import Message, Question
    from soft_reasoning.objective import SoftReasoningObjective
    from soft_reasoning.solution import Solution
    from soft_reasoning.types import Candidate, Problem, Result, Round, UserError

start()
reproducible_products()  # before torch computes anything

__version__ = "0.2.0"
__all__ = [
    "Candidate", "Message", "Problem", "Question", "Result", "Round", "SoftReasoner",
    "SoftReasoningObjective", "Solution", "UserError",
]  # fmt: skip

_MODULES = {
    "Message": "data.questions", "Question": "data.questions", "SoftReasoner": "api",
    "SoftReasoningObjective": "objective", "Solution": "solution",
}  # fmt: skip


def __getattr__(name: str) -> object:
    """Import a public name on first use, since transformers and Hydra take seconds."""
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'types')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
