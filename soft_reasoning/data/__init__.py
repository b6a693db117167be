"""Benchmarks: sources of rows, one adapter per benchmark (row to Problem), and the selection of problems."""

from soft_reasoning.data.dataset import Dataset
from soft_reasoning.data.exemplars import Exemplar

__all__ = ["Dataset", "Exemplar"]
