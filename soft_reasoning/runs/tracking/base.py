"""What a tracker does for a run of a data set."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from soft_reasoning.types import UserError

LOGGING = "logging.json"
"""In a run's folder: what each tracker calls the run."""


@dataclass(frozen=True)
class Tracked:
    """A run as a tracker sees it.

    Attributes:
        folder: Its folder. The last part is the run's name, the one before that of its group: a comparison, a
            sweep or simply where the runs are.
        config: Its configuration as plain data.
        settings: Those of its values that results depend on, by dotted key; a resumed run has the same.
        done: Problems that it holds already.
        id: What the tracker called it before; None for a new run.
    """

    folder: Path
    config: Mapping[str, Any]
    settings: Mapping[str, Any]
    done: int = 0
    id: str | None = None

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.folder.absolute().name

    @property
    def group(self) -> str:
        """The name of its group."""
        return self.folder.absolute().parent.name


class TrackedRun(Protocol):
    """A run that a tracker has begun or continues."""

    @property
    def id(self) -> str:
        """What the tracker calls it; with it a resumed run goes on in the same one."""
        ...

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Add running figures; ``step`` is the number of finished problems."""
        ...

    def finish(self, metrics: Mapping[str, float], files: Sequence[Path], step: int) -> None:
        """Add the final metrics and the report's files, and end the run as a successful one."""
        ...

    def interrupt(self) -> None:
        """End the run as one that may go on later."""
        ...


class Tracker(Protocol):
    """Follows runs; it is configured by the group ``logging``."""

    @property
    def name(self) -> str:
        """What the command line calls it."""
        ...

    def begin(self, run: Tracked) -> TrackedRun:
        """Begin ``run``, or continue the one of its ``id``.

        Raises:
            UserError: If the tracker cannot be reached.
        """
        ...


def library(name: str, tracker: str) -> ModuleType:
    """Import the library of a tracker.

    Raises:
        UserError: If it is not installed, naming the extra.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"logging={tracker}: expected {name.partition('.')[0]}, which cannot be imported ({error}): "
            f"pip install 'soft-reasoning[{tracker}]', or leave logging out"
        ) from error
