"""Benchmarks: sources of rows, one adapter per benchmark (row to Problem), and the selection of problems."""

from soft_reasoning.configuration.context import Config
from soft_reasoning.configuration.parts import make
from soft_reasoning.lab.data.dataset import Dataset

__all__ = ["Dataset", "build_dataset"]


def build_dataset(config: Config) -> Dataset:
    """Build the data set that ``config.dataset`` names."""
    return make(config["dataset"], "dataset")
