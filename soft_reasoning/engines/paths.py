"""Where a model is: the bundled one, a local folder, a GGUF file, or a name on the hub."""

from __future__ import annotations

import re
from pathlib import Path

from soft_reasoning.engines.gguf import gguf_path, is_gguf
from soft_reasoning.types import UserError

HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
API_NAME = re.compile(r"((openai|anthropic|google)/)?(gpt-[345]|chatgpt|o[134](?=-|$)|claude|gemini)[\w.-]*")
DEMO = "demo"
DEMO_FOLDER = Path(__file__).resolve().parents[1] / "demo" / "model"
ADVICE = "give a local folder (model.path=/path/to/model), or a hub name you have access to"


def resolve(path: str) -> str:
    """Return the folder of the bundled model for ``demo``, else ``path``: a folder, GGUF file or hub name.

    Raises:
        UserError: If the folder or file does not exist.
    """
    if is_gguf(str(path)):
        return gguf_path(str(path))
    if path != DEMO:
        name = str(path)
        folder = Path(name).expanduser()
        if folder.is_dir():
            return str(folder)
        if API_NAME.fullmatch(name):
            raise UserError(
                f"model.path: expected weights that can be loaded, got {name}, which only an API serves; "
                "take an open model, such as Qwen/Qwen3-1.7B"
            )
        if not HUB_NAME.fullmatch(name) or ("/" in name and folder.parent.is_dir()):
            raise UserError(f"expected a folder with a model at model.path, found none at {name}; {ADVICE}")
        return name
    if not (DEMO_FOLDER / "config.json").exists():
        raise UserError(f"expected the bundled model in {DEMO_FOLDER}, found none; reinstall the package")
    return str(DEMO_FOLDER)
