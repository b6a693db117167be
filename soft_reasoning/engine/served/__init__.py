"""Engines behind a URL: any server of OpenAI's kind, and vLLM and llama.cpp, which are started here."""

from __future__ import annotations

from soft_reasoning.engine.served.opening import llamacpp, served, vllm

__all__ = ["llamacpp", "served", "vllm"]
