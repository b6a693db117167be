"""PEFT adapters, merged into the weights of a model when it is loaded."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from soft_reasoning.engines.devices import is_out_of_memory
from soft_reasoning.types import UserError


def merged(model: Any, adapter: str) -> Any:
    """Return ``model`` with the weights of ``adapter``, a folder or hub name, merged into its own.

    Raises:
        UserError: If PEFT is missing, or the adapter is none of this model.
    """
    try:
        from peft import PeftModel
    except ImportError as error:
        raise UserError(
            "model.adapter: expected the package peft, got none; pip install 'soft-reasoning[finetuning]'"
        ) from error
    name = str(Path(adapter).expanduser())
    if name.startswith((".", "/")) and not Path(name).is_dir():
        raise UserError(f"model.adapter: expected a folder with a PEFT adapter, found none at {name}")
    try:
        with warnings.catch_warnings():  # PEFT uses a renamed module of transformers
            warnings.simplefilter("ignore", FutureWarning)
            return PeftModel.from_pretrained(model, name).merge_and_unload()
    except (OSError, ValueError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        raise UserError(
            f"model.adapter: expected a PEFT adapter of this model, and could not load {name} "
            f"({' '.join(str(error).split())[:200]})"
        ) from error
