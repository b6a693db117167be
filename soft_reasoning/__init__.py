"""Better answers from a frozen language model, by searching over one input embedding."""

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from soft_reasoning.objective import SoftReasoningObjective
    from soft_reasoning.questions import Message, Question
    from soft_reasoning.reasoner import SoftReasoner
    from soft_reasoning.schedule.method import Round
    from soft_reasoning.solution import Solution
    from soft_reasoning.types import Candidate, Problem, Result, UserError

__version__ = "0.3.0.dev0"
__all__ = [
    "Candidate",
    "Message",
    "Problem",
    "Question",
    "Result",
    "Round",
    "SoftReasoner",
    "SoftReasoningObjective",
    "Solution",
    "UserError",
]

_MODULES = {
    "Message": "questions",
    "Question": "questions",
    "Round": "schedule.method",
    "SoftReasoner": "reasoner",
    "SoftReasoningObjective": "objective",
    "Solution": "solution",
}


def _ask_for_reproducible_products() -> None:
    """Set ``MKL_CBWR``, which MKL reads at its first product, unless the user has set it.

    With it a row's product does not depend on the number of rows and threads, where MKL supports that.
    """
    try:
        with open("/proc/cpuinfo", "rb") as file:
            flags = file.read(8192)
    except OSError:  # not Linux
        flags = b""
    wide = all(name in flags for name in (b" avx512f", b" avx512bw", b" avx512dq", b" avx512vl"))
    os.environ.setdefault("MKL_CBWR", "AVX512,STRICT" if wide else "AVX2,STRICT")


_ask_for_reproducible_products()


def __getattr__(name: str) -> object:
    """Import a public name on first use, since transformers and Hydra take seconds."""
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'types')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
