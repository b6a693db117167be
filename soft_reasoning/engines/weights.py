"""A fingerprint of a model's weights, by which a run, a prior or an adapter knows them again."""

from __future__ import annotations

import hashlib
from pathlib import Path

PIECES, PIECE_BYTES = 64, 2**14


def weights_mark(path: str, revision: str | None) -> str:
    """Return a fingerprint of a model's weights.

    For a folder or a file it hashes names and sizes of the files (all but ``*.md``) and ``PIECES`` samples of
    each. For a model of the hub it is name and revision.
    """
    place = Path(path).expanduser()
    if not place.exists():
        return f"{path}@{revision or 'main'}"
    files = [place] if place.is_file() else [file for file in place.rglob("*") if file.is_file()]
    digest = hashlib.sha256()
    for file in sorted(file for file in files if file.suffix != ".md"):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with open(file, "rb") as content:
            for piece in range(PIECES):
                content.seek(max(0, size - PIECE_BYTES) * piece // (PIECES - 1))
                digest.update(content.read(PIECE_BYTES))
    return digest.hexdigest()[:16]
