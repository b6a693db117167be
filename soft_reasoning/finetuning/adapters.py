"""Folders of adapters, named by everything that determines them and written atomically."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from soft_reasoning.types import UserError

try:
    import fcntl
except ImportError:  # Windows has no flock; there two processes may train one adapter at once
    fcntl = None  # type: ignore[assignment]

ABOUT = "training.json"
WEIGHTS = ("*.safetensors", "*.bin")
PIECES, PIECE_BYTES = 64, 2**14


def weights_mark(path: str, revision: str | None) -> str:
    """Return a fingerprint of a model's weights.

    For a folder or file it hashes the sizes of its files and ``PIECES`` samples of each, for a model of the
    hub it is name and revision.
    """
    place = Path(path).expanduser()
    if not place.exists():
        return f"{path}@{revision or 'main'}"
    files = [place] if place.is_file() else [file for pattern in WEIGHTS for file in place.glob(pattern)]
    digest = hashlib.sha256()
    for file in sorted(files):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with open(file, "rb") as content:
            for piece in range(PIECES):
                content.seek(max(0, size - PIECE_BYTES) * piece // (PIECES - 1))
                digest.update(content.read(PIECE_BYTES))
    return digest.hexdigest()[:16]


def digest_of(value: Any) -> str:
    """Return twelve hexadecimal digits for plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def adapter(
    root: Path,
    name: str,
    made_with: Mapping[str, Any],
    train: Callable[[Path], Mapping[str, Any]],
    *,
    say: Callable[[str], None],
) -> Path:
    """Return the folder under ``root`` of the adapter that ``made_with`` determines, trained if missing.

    ``train`` works in a folder beside the final one, which keeps its state if the process is killed and is
    renamed when everything is on disk. Its result is stored in ``training.json``. Of several processes that
    need the same adapter, one trains it and the others wait.

    Args:
        root: Folder of all adapters.
        name: Start of the folder's name.
        made_with: Plain data that determines the adapter.
        train: Trains into a folder and returns what to store.
        say: Prints a line.

    Raises:
        UserError: If the folder cannot be written.
    """
    folder = root / f"{name}-{digest_of(made_with)}"
    if (folder / ABOUT).is_file():
        say(f"fine-tuned before: {folder}")
        return folder
    work = folder.with_name(f"{folder.name}.part")
    try:
        work.mkdir(parents=True, exist_ok=True)
        lock = open(folder.with_name(f"{folder.name}.lock"), "w")
    except OSError as error:
        raise UserError(
            f"{root}: expected a folder that can be written, got {error.strerror or error}; choose another "
            "with finetuning.folder="
        ) from error
    with lock:
        _lock(lock, folder, say)
        if (folder / ABOUT).is_file():  # another process has trained it meanwhile
            return folder
        work.mkdir(exist_ok=True)
        about = {"made_with": made_with, **train(work)}
        (work / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        for file in work.iterdir():
            _to_disk(file)
        os.rename(work, folder)
        _to_disk(root)
    return folder


def _lock(lock: Any, folder: Path, say: Callable[[str], None]) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another process trains {folder}; waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def to_stderr(line: str) -> None:
    """Print a line to standard error."""
    print(line, file=sys.stderr, flush=True)
