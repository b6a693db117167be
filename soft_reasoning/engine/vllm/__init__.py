"""vLLM behind the engine seam: the fast engine on GPUs."""

from soft_reasoning.engine.vllm.engine import VLLMEngine

__all__ = ["VLLMEngine"]
