"""Where the problems of one run are solved: in this process, or by several engines on Ray.

Hydra's own launchers (``hydra/launcher=``) are another thing: they run the jobs of a sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from omegaconf import DictConfig

from soft_reasoning.evaluation.runner import Solver
from soft_reasoning.types import Problem


class Launcher(Protocol):
    def start(self, config: DictConfig, problems: Sequence[Problem], exemplars: Sequence[Any] = ()) -> Solver:
        """What solves ``problems`` as ``config`` says; engines are kept for the next configuration that
        can use them. Raises UserError for a prompt that is too long."""
        ...

    def close(self) -> None:
        """Give engines and processes back."""
        ...
