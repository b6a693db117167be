"""What a tracker does for a run of a data set."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from soft_reasoning.checks import finite
from soft_reasoning.runs.files import MANIFEST, PAGE, PREDICTIONS, REPORT, RESULTS, write_json
from soft_reasoning.runs.manifest import flatten, result_keys
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


class Followed:
    """Tells ``tracker`` about the run in ``folder``; None tells nobody.

    The run's id at the tracker is kept in ``logging.json``, so that a resumed run goes on in the same one. An
    error of the tracker after the beginning ends the logging, which is said in one line, and not the run.

    Args:
        tracker: The tracker.
        say: Prints one line.
    """

    def __init__(self, tracker: Tracker | None, say: Callable[[str], None]) -> None:
        self._tracker, self._say = tracker, say
        self._run: TrackedRun | None = None

    def begin(self, folder: Path, config: Mapping[str, Any], done: int) -> None:
        """Begin the run, or continue the one that holds ``done`` problems.

        Raises:
            UserError: If the tracker cannot be reached.
        """
        if self._tracker is None:
            return
        path = folder / LOGGING
        names: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        known = names.get(self._tracker.name)
        self._run = self._tracker.begin(Tracked(folder, config, result_keys(config), done, known))
        write_json(path, {**names, self._tracker.name: self._run.id})

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Log running figures of the first ``step`` problems."""
        self._tell(lambda run: run.log(figures, step))

    def finish(self, folder: Path, metrics: Mapping[str, Any]) -> None:
        """Log the final metrics and the report's files."""
        numbers = {name: value for name, value in flatten(metrics).items() if finite(value)}
        named = [folder / name for name in (RESULTS, REPORT, PAGE, PREDICTIONS, MANIFEST)]
        files = [path for path in named if path.is_file()] + sorted(folder.glob("*.png"))
        self._tell(lambda run: run.finish(numbers, files, metrics["problems"]))
        self._run = None

    def interrupt(self) -> None:
        """End the run, unless it is finished, as one that may go on later."""
        self._tell(lambda run: run.interrupt())
        self._run = None

    def _tell(self, call: Callable[[TrackedRun], None]) -> None:
        if self._run is None:
            return
        try:
            call(self._run)
        except Exception as error:  # such as a server that has gone: hours of work do not end for it
            assert self._tracker is not None
            self._run = None
            self._say(f"logging={self._tracker.name} ended: {type(error).__name__}: {error}")
