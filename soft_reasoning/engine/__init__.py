"""Engines: token ids in, tokens out."""
