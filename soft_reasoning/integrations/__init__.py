"""Soft Reasoning inside other programs; each needs the extra of its name."""
