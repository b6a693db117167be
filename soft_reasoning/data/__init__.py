"""Benchmarks: where rows come from (``sources``), how a row becomes a Problem (one file a benchmark), and
which of them a run takes (``dataset``)."""

from soft_reasoning.data.dataset import Dataset
from soft_reasoning.data.exemplars import Exemplar

__all__ = ["Dataset", "Exemplar"]
