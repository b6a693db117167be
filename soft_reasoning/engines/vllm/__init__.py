"""vLLM behind the engine seam: the fast engine on GPUs."""

from soft_reasoning.engines.vllm.engine import VLLMEngine

__all__ = ["VLLMEngine"]
