"""The command ``convert``: a GGUF file becomes a folder, which loads in seconds."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from soft_reasoning.checks import local_path
from soft_reasoning.commands.launch import one_line_errors
from soft_reasoning.types import UserError

DESCRIPTION = """\
Dequantises the weights of a GGUF file and writes them and the tokenizer into a folder, which model=FOLDER
loads in seconds. The weights have the dtype that model.dtype=auto takes on this machine (bfloat16 or
float32), unless --dtype names another."""


def main(words: Sequence[str]) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="soft-reasoning convert",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", metavar="FILE.gguf", help="a file of this machine, or of the hub (OWNER/REPOSITORY/FILE.gguf)"
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the folder to write; it must not exist")
    parser.add_argument("--dtype", default="auto", help="auto, bfloat16, float16 or float32")
    arguments = parser.parse_args(words)
    with one_line_errors():
        convert(arguments.file, arguments.folder, arguments.dtype)


def convert(file: str, folder: Path, dtype: str = "auto") -> None:
    """Write the model in a GGUF ``file`` into ``folder``, as safetensors.

    Raises:
        UserError: If there is no such file, the folder exists, or the disk has no room for it.
    """
    from soft_reasoning.engine.devices import choose_device
    from soft_reasoning.engine.loading import load
    from soft_reasoning.engine.paths import is_gguf, resolve

    path, folder = resolve(file), local_path("FOLDER", folder)
    if not is_gguf(path):
        raise UserError(f"expected a GGUF file (FILE.gguf), got {file}; other models load as they are")
    if folder.exists():
        raise UserError(f"expected a folder that does not exist yet, got {folder}; name another")
    model, tokenizer = load(path, choose_device("cpu"), dtype)
    size = model.get_memory_footprint()
    place = next(parent for parent in folder.absolute().parents if parent.is_dir())
    free, kind = shutil.disk_usage(place).free, str(model.dtype).removeprefix("torch.")
    print(f"{folder}: {size / 1e9:.2f} GB in {kind}, {free / 1e9:.1f} GB are free", file=sys.stderr)
    if free < size:
        raise UserError(
            f"expected {size / 1e9:.2f} GB of free space for {folder}, got {free / 1e9:.2f}; free some, or "
            "name a folder on another disk"
        )
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    unfinished.rename(folder)
    print(f"model={folder}")
