"""Benchmarks: sources of rows, one adapter per benchmark (row to Problem), and the selection of problems."""

from soft_reasoning.lab.data.dataset import Dataset, build_dataset

__all__ = ["Dataset", "build_dataset"]
