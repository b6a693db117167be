"""The files of a run's folder: names, reading, and atomic writing."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from soft_reasoning.types import UserError

Json: TypeAlias = Mapping[str, Any]
"""An object of JSON: a configuration, a manifest, metrics, an entry of a trace."""

MANIFEST = "manifest.json"
SAMPLES = "samples.jsonl"
COSTS = "costs.json"
RESULTS = "results.json"
GRADES = "grades.json"
REPORT = "report.md"
PREDICTIONS = "predictions.csv"
PAGE = "report.html"
TABLES = "tables"
"""Inside a run's folder, on demand: all its tables as CSV and LaTeX."""
COMPARISON = "comparison.md"
BUDGET_RUNS = "probes"
"""Inside a comparison: runs that only measure how many samples an equal budget allows."""

OTHER_FOLDER = "fix that, or choose another folder with hydra.run.dir="
"""The advice of commands that take this option."""


def read_json(path: Path, fix: str = "run it to its end, or give the folder of one run") -> Any:
    """Read a JSON file of a run, such as its manifest or metrics; ``fix`` ends the message.

    Raises:
        UserError: If ``path`` is missing or damaged.
    """
    try:
        return {**json.loads(path.read_bytes())}
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path}: expected the file of a finished run, got one that cannot be read; {fix}"
        ) from error


def lock(file: int, folder: Path) -> str | None:
    """Lock ``file``, an open descriptor, until it is closed or the process ends; ``folder`` is in messages.

    Returns:
        None, or a line that says why it could not be locked.

    Raises:
        UserError: If another process has locked it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UserError(
            f"{folder} is in use by another run; wait for it to end, or choose another folder with "
            "hydra.run.dir="
        ) from error
    except OSError as error:  # some network filesystems, such as Lustre, have no flock
        return (
            f"{folder} cannot be locked ({error.strerror or error}): let only one run write there; "
            "completions of unfinished problems are not kept there (cache=FOLDER keeps them elsewhere)"
        )
    return None


def encode(text: str) -> bytes:
    """Encode ``text`` in UTF-8; half of a surrogate pair becomes its escape in JSON."""
    return text.encode("utf-8", "backslashreplace")


def write_json(path: Path, value: object) -> None:
    """Write ``value`` atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write ``text`` atomically."""
    draft = path.with_name(path.name + ".part")
    try:
        with open(draft, "wb") as file:
            file.write(encode(text))
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
