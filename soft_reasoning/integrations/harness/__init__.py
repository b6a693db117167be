"""The model ``soft_reasoning`` of lm-evaluation-harness, and the command ``soft-reasoning eval``."""
