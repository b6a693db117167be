"""Fine-tuning of LoRA adapters with the token-wise constrained objective."""
