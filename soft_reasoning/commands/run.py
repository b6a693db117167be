"""The commands ``run`` and ``sweep``: a method on a data set, or several on the same problems.

What takes seconds to import is imported after the options are checked: a wrong one is rejected at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from soft_reasoning.commands.launch import launch, one_line_errors


def run_command(config: DictConfig, folder: Path) -> None:
    """Run the configured method or comparison."""
    from soft_reasoning.commands.solving import run_configured

    run_configured(config, folder)


def main(words: Sequence[str]) -> None:
    """Run the command line."""
    sweep = launch(run_command, words)
    if sweep is not None and sweep.is_dir():  # some of Hydra's flags run nothing
        with one_line_errors():
            from soft_reasoning.commands.sweep import combine

            combine(sweep)


def sweep_main(words: Sequence[str]) -> None:
    """Run the command line ``sweep``: every combination of values separated by commas."""
    main(["--multirun", *words])
