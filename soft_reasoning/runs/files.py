"""The files of a run's folder: names, reading, and atomic writing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soft_reasoning.checks import finite
from soft_reasoning.types import UserError


@dataclass(frozen=True)
class Kind:
    """A plain value: what it is called, and whether a value is one."""

    name: str
    holds: Callable[[Any], bool]

    def __or__(self, other: Kind) -> Kind:
        return Kind(f"{self.name} or {other.name}", lambda value: self.holds(value) or other.holds(value))


@dataclass(frozen=True)
class Each:
    """A mapping of any keys, each value of one shape."""

    shape: Any


NULL = Kind("null", lambda value: value is None)
TEXT = Kind("a text", lambda value: isinstance(value, str))
SWITCH = Kind("true or false", lambda value: isinstance(value, bool))
NUMBER = Kind("a finite number", finite)
REAL = Kind("a number", lambda value: isinstance(value, float) and value == value or finite(value))
COUNT = Kind("a whole number", lambda value: finite(value) and isinstance(value, int) and value >= 0)
ANY = Kind("anything", lambda value: True)
MAPPING = Kind("an object", lambda value: isinstance(value, Mapping))


def fault(value: Any, shape: Any, where: str = "") -> str | None:
    """The first place at which ``value`` is not of ``shape``, in words; None where it is.

    A shape is a :class:`Kind`; a list of one shape; an :class:`Each`; or a mapping from keys to shapes, of
    which those that end in ``?`` may be missing or null.
    """
    place = f"{where}: " if where else ""
    if isinstance(shape, Kind):
        return None if shape.holds(value) else f"{place}expected {shape.name}, got {value!r:.60}"
    if isinstance(shape, list):
        if not isinstance(value, list | tuple):
            return f"{place}expected a list, got {value!r:.60}"
        parts = ((f"{where}[{i}]", one, shape[0]) for i, one in enumerate(value))
    elif not isinstance(value, Mapping):
        return f"{place}expected an object, got {value!r:.60}"
    elif isinstance(shape, Each):
        parts = ((_joined(where, key), one, shape.shape) for key, one in value.items())
    else:
        for key in shape:
            if not key.endswith("?") and key not in value:
                return f"{_joined(where, key)}: expected it, got nothing"
        named = ((key.removesuffix("?"), key.endswith("?"), inner) for key, inner in shape.items())
        parts = (
            (_joined(where, key), value[key], inner)
            for key, optional, inner in named
            if not (optional and value.get(key) is None)
        )
    return next((found for one in parts if (found := fault(one[1], one[2], one[0]))), None)


def _joined(where: str, key: str) -> str:
    return f"{where}.{key}" if where else str(key)


MANIFEST = "manifest.json"
SAMPLES = "samples.jsonl"
TIMING = "timing.jsonl"
RESULTS = "results.json"
GRADES = "grades.json"
REPORT = "report.md"
PREDICTIONS = "predictions.csv"
PAGE = "report.html"
PAGE_DATA = "report_data"
"""Beside a page: what is too large to stand in it."""
CONFIG = ".hydra/config.yaml"
PEAKS = "peak_bytes"
USED = "used_bytes"
PROBES = "probes"
"""Inside a comparison: runs that only determine how many samples an equal budget allows."""


AGAIN = "the command of the run writes them again"

_MANIFEST = {
    "config": MAPPING,
    "model?": MAPPING,
    "flops?": {"position": NUMBER, "key": NUMBER},
    "versions?": MAPPING,
    "independent?": SWITCH,
}
_SHARES = ("exact_match", "coverage", "coverage@5", "pass@5", "decided")
_VALUES = Each(NUMBER | NULL)
_PARTS = {
    "tokens?": Each(Each(COUNT)),
    "rounds?": {"mean?": NUMBER, "share_ended_after?": Each(NUMBER)},
    "by_round?": [_VALUES],
    "verifier?": _VALUES,
    "auc?": _VALUES,
    "seconds?": Each(NUMBER),
    "peak_bytes?": _VALUES,
    "mean_bytes?": _VALUES,
}
_RESULTS = {
    "problems": Kind("a whole number of at least 1", lambda value: COUNT.holds(value) and value > 0),
    **{f"{name}{end}?": NUMBER for name in _SHARES for end in ("", "_stderr")},
    **_PARTS,
}
_TIMES = {f"{PEAKS}?": Each(COUNT), f"{USED}?": Each([COUNT])}


def read_records(folder: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield the records of a run; a torn last line is skipped.

    Raises:
        UserError: If there are none, or a whole line is no record.
    """
    path = Path(folder) / SAMPLES
    if not path.is_file():
        raise UserError(f"expected a run's folder with {SAMPLES}, found none in {folder}; check the path")
    for _, record in scan_records(path):
        yield record


def read_json(path: Path) -> Any:
    """Read a file of a finished run.

    Raises:
        UserError: If ``path`` is missing or damaged.
    """
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: expected a finished run's {path.name}, found none that can be read; run it to its end"
        ) from error


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the manifest of a run.

    Raises:
        UserError: If it is missing, damaged or of another shape.
    """
    path = Path(folder) / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        found = fault(manifest, _MANIFEST)
    except (OSError, ValueError, RecursionError) as error:
        found = "it is missing" if isinstance(error, OSError) else "it is no JSON"
    if found is not None:
        raise UserError(
            f"{path}: expected the manifest of the results in this folder, found none that can be read "
            f"({found}); start over with fresh=true, or choose another folder with hydra.run.dir="
        )
    return manifest


def read_results(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The metrics of a finished run. Raises UserError when they are missing, damaged or of another shape."""
    path = Path(folder) / RESULTS
    results = read_json(path)
    if found := fault(results, _RESULTS):
        raise UserError(f"{path}: expected the metrics of a finished run ({found}); {AGAIN}")
    return {key: value for key, value in results.items() if value is not None or f"{key}?" not in _PARTS}


def read_grades(folder: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Each problem's outcome in a finished run, by id. Raises UserError when they are missing or damaged."""
    path = Path(folder) / GRADES
    grades = read_json(path)
    if found := fault(grades, Each({"correct": SWITCH | NULL, "covered": SWITCH, "difficulty?": TEXT})):
        raise UserError(f"{path}: expected each problem's outcome ({found}); {AGAIN}")
    return grades


def read_seconds(folder: str | os.PathLike[str]) -> dict[str, float]:
    """Return seconds by kind, summed over every start of the run; lines torn by a crash are skipped."""
    total: dict[str, float] = {}
    for entry in _timing(folder):
        for kind, value in entry.items():
            if kind not in (PEAKS, USED):
                total[kind] = total.get(kind, 0.0) + value
    return total


def read_peaks(folder: str | os.PathLike[str]) -> dict[str, int]:
    """Return the most bytes that an engine used during any start of the run, by kind."""
    peaks: dict[str, int] = {}
    for entry in _timing(folder):
        for kind, value in (entry.get(PEAKS) or {}).items():
            peaks[kind] = max(value, peaks.get(kind, 0))
    return peaks


def read_means(folder: str | os.PathLike[str]) -> dict[str, float]:
    """Return the mean bytes that an engine used over the samples of every start of the run, by kind."""
    totals: dict[str, list[int]] = {}
    for entry in _timing(folder):
        for kind, (size, count) in (entry.get(USED) or {}).items():
            total = totals.setdefault(kind, [0, 0])
            total[0] += size
            total[1] += count
    return {kind: size / count for kind, (size, count) in totals.items() if count}


def _timing(folder: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    path = Path(folder) / TIMING
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        if number == len(lines) and not line.endswith(b"\n"):  # torn by a crash
            return
        try:
            entry = json.loads(line)
            found = fault(entry, _TIMES)
            rest = {k: v for k, v in entry.items() if k not in (PEAKS, USED)} if found is None else {}
            found = found or fault(rest, Each(NUMBER))
            if found is None and any(len(pair) != 2 for pair in (entry.get(USED) or {}).values()):
                found = f"{USED}: expected pairs"
        except (ValueError, RecursionError):
            found = "it is no JSON in UTF-8"
        if found is not None:
            raise UserError(
                f"{path}, line {number}: expected seconds by kind, found an edited line ({found}); delete "
                "that line, or start over with fresh=true"
            )
        yield entry


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an OSError while ``folder`` is written, such as a full disk, into a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{folder}: expected a folder that can be written, got {error.strerror or error}; "
            "fix that, or choose another with hydra.run.dir="
        ) from error


def encoded(text: str) -> bytes:
    """``text`` in UTF-8; half of a surrogate pair becomes the escape that JSON reads as such."""
    return text.encode("utf-8", "backslashreplace")


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write ``text`` atomically."""
    draft = path.with_name(path.name + ".part")
    with writing(path.parent):
        with open(draft, "wb") as file:
            file.write(encoded(text))
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)


def scan_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (end of the line in bytes, record) for each line; a last one without its newline is torn."""
    end = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            record = _record(line)
            if record is None:
                raise UserError(
                    f"{path}, line {number}: expected a record, found an edited line; restore or delete "
                    "that line, or start over with fresh=true"
                )
            end += len(line)
            yield end, record


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("doc_id"), str) else None
