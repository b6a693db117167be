"""Soft Reasoning inside other programs; each needs the extra of the same name."""
