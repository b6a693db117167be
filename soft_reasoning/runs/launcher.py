"""Where a run's problems are solved: in this process, or by several engines on Ray.

Hydra's own launchers (``hydra/launcher=``) run the jobs of a sweep instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from omegaconf import DictConfig

from soft_reasoning.runs.runner import Solver
from soft_reasoning.types import Problem


class Launcher(Protocol):
    """Starts solvers and keeps their engines between runs."""

    def start(self, config: DictConfig, problems: Sequence[Problem], exemplars: Sequence[Any] = ()) -> Solver:
        """Return a solver for ``config``; engines are reused if the next configuration allows it.

        Raises:
            UserError: If a prompt is too long.
        """
        ...

    def close(self) -> None:
        """Release engines and processes."""
        ...
