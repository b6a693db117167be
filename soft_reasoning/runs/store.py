"""A run's folder: one writer at a time, results on disk before they count, nothing lost to a crash.

``manifest.json`` describes how the run was made, ``samples.jsonl`` holds one record per problem and
``timing.jsonl`` the times. Everything else in the folder is computed from these three.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import yaml

from soft_reasoning.runs.files import (
    CONFIG,
    GRADES,
    MANIFEST,
    PAGE,
    PEAKS,
    PREDICTIONS,
    REPORT,
    RESULTS,
    SAMPLES,
    TIMING,
    encoded,
    read_manifest,
    scan_records,
    write_json,
    write_text,
    writing,
)
from soft_reasoning.runs.manifest import (
    IGNORED,
    environment_changes,
    manifest_of,
    refuse_other,
)
from soft_reasoning.runs.records import ProblemKey, problem_key
from soft_reasoning.types import UserError

try:
    import fcntl
except ImportError:  # Windows has no flock; there the folder is not guarded
    fcntl = None  # type: ignore[assignment]

DERIVED = (
    RESULTS, GRADES, REPORT, PREDICTIONS, PAGE, "*.png", "*.pdf", "tables/*",
)  # fmt: skip
"""What is computed from the rest, and removed when a run starts over."""


class Store:
    """The folder of one run, open for writing.

    ``done`` maps the id of every stored problem to its ``problem_key``. ``notes`` holds one line for each
    observation on opening. ``samples.jsonl`` itself is locked (flock), so a dead process leaves no lock.

    Raises:
        UserError: If the folder cannot be written, is in use by another process, or holds results of
            another configuration or of other weights; if a whole line of ``samples.jsonl`` is no record; and
            if a method cannot write.

    Example:
        >>> with Store(folder, {"seed": 0}) as store:
        ...     store.append({"doc_id": "0", "answer": "18"})
        ...     store.sync()
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        config: Mapping[str, Any],
        *,
        ignore: Sequence[str] = IGNORED,
        fresh: bool = False,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder: Path = Path(folder)
        self.done: dict[str, ProblemKey] = {}
        self.notes: list[str] = []
        self._timing: IO[str] | None = None
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._samples = os.open(self.folder / SAMPLES, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            self._lock()
            self._open(config, ignore, fresh, about)
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._samples, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"{self.folder} is in use by another run; wait for it to end, or choose another folder with "
                "hydra.run.dir="
            ) from error

    def _open(
        self, config: Mapping[str, Any], ignore: Sequence[str], fresh: bool, about: Mapping[str, Any] | None
    ) -> None:
        manifest = manifest_of(config, ignore, about)
        self._config = manifest["config"]
        with writing(self.folder):
            if fresh:
                self._start_over()
            if os.fstat(self._samples).st_size:
                old = read_manifest(self.folder)
                refuse_other(old, manifest, self.folder, ignore)
                self._resume()
                if changes := environment_changes(old, manifest):
                    self.notes.append(f"continuing a run made with other versions ({'; '.join(changes)})")
            else:
                self._describe(manifest)
            timing = self.folder / TIMING
            if timing.is_file():  # its last line may be torn by a crash
                os.truncate(timing, timing.read_bytes().rfind(b"\n") + 1)
            self._timing = open(timing, "a", encoding="utf-8")

    def _describe(self, manifest: Mapping[str, Any]) -> None:
        write_json(self.folder / MANIFEST, manifest)
        (self.folder / CONFIG).parent.mkdir(exist_ok=True)
        write_text(self.folder / CONFIG, yaml.safe_dump(manifest["config"], sort_keys=False))

    def _start_over(self) -> None:
        os.ftruncate(self._samples, 0)
        for pattern in (TIMING, *DERIVED):
            for path in self.folder.glob(pattern):
                path.unlink()

    def _resume(self) -> None:
        """Fill ``done``; cut a torn last line off."""
        path = self.folder / SAMPLES
        whole = 0
        for end, record in scan_records(path):
            whole = end
            self.done[record["doc_id"]] = problem_key(record)
        if whole < os.fstat(self._samples).st_size:
            os.ftruncate(self._samples, whole)
            self.notes.append(f"{path}: dropped its last line, torn by a crash; that problem runs again")

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one problem's record, which is safe after :meth:`sync`."""
        line = memoryview(encoded(json.dumps(record, ensure_ascii=False) + "\n"))
        with writing(self.folder):
            while line:
                line = line[os.write(self._samples, line) :]
        self.done[record["doc_id"]] = problem_key(record)

    def sync(self) -> None:
        """Bring every record so far onto the disk, with one fsync for all that were written together."""
        with writing(self.folder):
            os.fsync(self._samples)

    def add_seconds(self, seconds: Mapping[str, float], peaks: Mapping[str, int] | None = None) -> None:
        """Add seconds by kind since the last call, and the peaks of memory.

        These may be lost with the process; results are not.
        """
        assert self._timing is not None
        with writing(self.folder):
            self._timing.write(json.dumps({**seconds, PEAKS: dict(peaks or {})}) + "\n")
            self._timing.flush()

    def measured(self) -> None:
        """Write the configuration of the results into the manifest.

        Keys that change no problem's result, such as ``limit``, may have had other values when the run
        began.
        """
        self._describe(read_manifest(self.folder) | {"config": self._config})

    def close(self) -> None:
        """Release the folder."""
        try:
            if self._timing is not None:
                with writing(self.folder):
                    self._timing.close()
        finally:
            os.close(self._samples)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
