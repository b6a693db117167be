"""Better answers from a frozen language model, by searching over one input embedding."""

from importlib import import_module

_HOME = {
    "SoftReasoner": "api",
    "SoftReasoningObjective": "objective",
    **dict.fromkeys(("Candidate", "Problem", "Result", "UserError"), "types"),
}

__version__ = "0.1.0"
__all__ = list(_HOME)


def __getattr__(name: str):
    """Import on first use: transformers and Hydra take seconds, and most modules need neither."""
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
