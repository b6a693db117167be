"""Any decoder-only language model of transformers, on any device: the reference engine."""

from soft_reasoning.engine.huggingface.engine import HuggingFaceEngine

__all__ = ["HuggingFaceEngine"]
