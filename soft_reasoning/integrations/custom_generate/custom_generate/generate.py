"""Soft Reasoning as ``model.generate(custom_generate=...)``; all of it is in the package soft_reasoning."""

from soft_reasoning.integrations.generation import generate

__all__ = ["generate"]
