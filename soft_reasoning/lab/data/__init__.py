"""Benchmarks: sources of rows, one adapter per benchmark (row to Problem), and the selection of problems."""

from collections.abc import Mapping
from typing import Any

from soft_reasoning.configuration.parts import make
from soft_reasoning.lab.data.dataset import Dataset

__all__ = ["Dataset", "build_dataset"]


def build_dataset(config: Mapping[str, Any]) -> Dataset:
    """Build the data set that ``config.dataset`` names."""
    return make(config["dataset"], "dataset")
