"""Where adapters lie: a folder named by all that went into it, whole or not there at all."""

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
except ImportError:  # Windows has no flock; there two trainings of one adapter are not kept apart
    fcntl = None  # type: ignore[assignment]

ABOUT = "training.json"
WEIGHTS = ("*.safetensors", "*.bin")
PIECES, PIECE_BYTES = 64, 2**14


def weights_mark(path: str, revision: str | None) -> str:
    """What tells a model's weights from others: of a folder's files their sizes and ``PIECES`` from all over
    them, of a model of the hub its name and revision."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return f"{path}@{revision or 'main'}"
    digest = hashlib.sha256()
    for file in sorted(file for pattern in WEIGHTS for file in folder.glob(pattern)):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with open(file, "rb") as content:
            for piece in range(PIECES):
                content.seek(max(0, size - PIECE_BYTES) * piece // (PIECES - 1))
                digest.update(content.read(PIECE_BYTES))
    return digest.hexdigest()[:16]


def digest_of(value: Any) -> str:
    """Twelve hexadecimal digits for plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def adapter(
    root: Path,
    name: str,
    made_with: Mapping[str, Any],
    train: Callable[[Path], Mapping[str, Any]],
    *,
    say: Callable[[str], None],
) -> Path:
    """The folder under ``root`` of the adapter that ``made_with`` (plain data) determines.

    Unless it is there, ``train`` makes it in a working folder beside it, which keeps its state over a kill
    and takes its final name when all of it is on disk; what ``train`` returns is kept in ``training.json``.
    Of several processes that want the same adapter one trains it and the others wait.
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
    print(line, file=sys.stderr, flush=True)
