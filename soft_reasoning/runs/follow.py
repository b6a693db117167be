"""A run followed by a tracker of experiments, if there is one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from soft_reasoning.checks import finite
from soft_reasoning.runs.files import MANIFEST, PAGE, PREDICTIONS, REPORT, RESULTS, write_json
from soft_reasoning.runs.settings import flatten, result_keys
from soft_reasoning.runs.tracking.base import LOGGING, Tracked, TrackedRun, Tracker


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
