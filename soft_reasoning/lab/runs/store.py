"""A run's folder: one writer at a time, results on disk before they count, no loss in a crash.

``manifest.json`` describes the run, ``samples.jsonl`` holds a record per problem and ``costs.json`` their
time and memory. Everything else in the folder is computed from these three files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from soft_reasoning.engine.completions import FILE as COMPLETIONS
from soft_reasoning.lab.runs.files import (
    COSTS,
    GRADES,
    HYDRA,
    MANIFEST,
    OTHER_FOLDER,
    PAGE,
    PREDICTIONS,
    REPORT,
    RESULTS,
    SAMPLES,
    TABLES,
    encode,
    lock,
    read_json,
    write_json,
    write_text,
    writing,
)
from soft_reasoning.lab.runs.manifest import build_manifest, check_same_run, environment_changes
from soft_reasoning.lab.runs.records import Record, read_records

START_OVER = "start over with fresh=true, or choose another folder with hydra.run.dir="
DERIVED = (
    *(RESULTS, GRADES, REPORT, PREDICTIONS, PAGE, f"{TABLES}/*.csv", f"{TABLES}/*.tex"),
    *("*.svg", "*.png", "*.pdf", f"{COMPLETIONS}*"),
)
"""Files that are removed when a run starts over: those computed from the others, and the completions."""


class Store:
    """The folder of one run, open for writing.

    ``records`` are the stored records, in order. ``costs`` are the ``seconds`` and ``peak_bytes``, by kind,
    over all starts of the run. ``notes`` holds a line for each observation on opening. ``samples.jsonl``
    itself is locked (flock), so a dead process leaves no lock. ``locked`` is False where the filesystem has
    no locks.

    Raises:
        UserError: If the folder cannot be written, is in use by another process, or holds results of another
            configuration or of other weights; if a complete line of ``samples.jsonl`` is not a record; and
            if a method cannot write.

    Example:
        >>> with Store(folder, {"seed": 0}) as store:
        ...     store.append(Record.of(problem, result, grader))
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        config: Mapping[str, object],
        *,
        words: Sequence[str] = (),
        chosen: Mapping[str, str] | None = None,
        fresh: bool = False,
        about: Mapping[str, object] | None = None,
    ) -> None:
        self.folder: Path = Path(folder)
        self.records: list[Record] = []
        self.costs: dict[str, dict[str, Any]] = {"seconds": {}, "peak_bytes": {}}
        self.notes: list[str] = []
        manifest = build_manifest(config, words, about, chosen)
        self._words = list(words)
        self._updated = {name: manifest[name] for name in ("command", "choices", "config")}
        with writing(self.folder, OTHER_FOLDER):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._samples = os.open(self.folder / SAMPLES, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            self._lock()
            with writing(self.folder):
                if fresh:
                    self._start_over()
                if os.fstat(self._samples).st_size:
                    self._resume(manifest)
                else:
                    self._describe(manifest)
                    write_json(self.folder / COSTS, self.costs)
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        self.locked = (why := lock(self._samples, self.folder)) is None
        if why is not None:
            self.notes.append(why)

    def _start_over(self) -> None:
        os.ftruncate(self._samples, 0)
        for pattern in DERIVED:
            for path in self.folder.glob(pattern):
                path.unlink()

    def _resume(self, manifest: Mapping[str, object]) -> None:
        """Check that the run is the same and read its records; remove a torn last line."""
        old, path = read_json(self.folder / MANIFEST, START_OVER), self.folder / SAMPLES
        check_same_run(old, manifest, self.folder)
        self.costs = read_json(self.folder / COSTS, START_OVER)
        self.records = list(read_records(self.folder))
        lines = path.read_bytes()
        if twice := lines.count(b"\n") - len(self.records):
            self.notes.append(f"{path}: {twice} of its lines repeat a problem; the first one counts")
        whole = lines.rfind(b"\n") + 1
        if whole < os.fstat(self._samples).st_size:
            os.ftruncate(self._samples, whole)
            self.notes.append(f"{path}: dropped a last line that a crash cut off; that problem runs again")
        if changes := environment_changes(old, manifest):
            self.notes.append(f"continuing a run made with other versions ({'; '.join(changes)})")

    def append(self, record: Record) -> None:
        """Write a problem's record and wait until it is on the disk."""
        # A row of Parquet or the hub may hold dates, decimals or pictures: ``default``.
        line = memoryview(encode(json.dumps(record.line(), ensure_ascii=False, default=str) + "\n"))
        with writing(self.folder):
            while line:
                line = line[os.write(self._samples, line) :]
            os.fsync(self._samples)

    def add_costs(self, seconds: Mapping[str, float], peaks: Mapping[str, int]) -> None:
        """Add the seconds by kind since the last call, and update the peaks of memory."""
        for name, values, combine in (("seconds", seconds, sum), ("peak_bytes", peaks, max)):
            for kind, value in values.items():
                self.costs[name][kind] = combine((self.costs[name].get(kind, 0), value))
        write_json(self.folder / COSTS, self.costs)

    def update_config(self) -> None:
        """Write the command and the configuration of the results into the manifest.

        Keys that change no problem's result, such as ``limit``, may have had other values at the first start.
        """
        self._describe(read_json(self.folder / MANIFEST) | self._updated)

    def _describe(self, manifest: Mapping[str, object]) -> None:
        """Write the manifest and Hydra's files, which Hydra itself would write before the run is accepted."""
        write_json(self.folder / MANIFEST, manifest)
        files: dict[str, Any] = {"config": manifest["config"], "overrides": self._words}
        if HydraConfig.initialized():
            files["hydra"] = {"hydra": OmegaConf.to_container(HydraConfig.get(), enum_to_str=True)}
        (self.folder / HYDRA).mkdir(exist_ok=True)
        for name, content in files.items():
            text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
            write_text(self.folder / HYDRA / f"{name}.yaml", text)

    def close(self) -> None:
        """Release the folder."""
        os.close(self._samples)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
