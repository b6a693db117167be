"""Wording to token ids: ``wording`` (texts and templates) and ``building`` (prompts of a run)."""

from soft_reasoning.prompts.building import DATE, LAYOUTS, PLACEMENTS, Prompts
from soft_reasoning.prompts.wording import Exemplar, ReviewWording, TaskWording, Wording

__all__ = ["DATE", "Exemplar", "LAYOUTS", "PLACEMENTS", "Prompts", "ReviewWording", "TaskWording", "Wording"]
