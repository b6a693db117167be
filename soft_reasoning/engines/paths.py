"""Where a model is: the bundled one, a local folder, a GGUF file, or a name on the hub."""

from __future__ import annotations

from pathlib import Path

from soft_reasoning.engines.gguf import gguf_path, is_gguf
from soft_reasoning.types import UserError

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
        if not name.startswith((".", "/", "~")):
            return name
        if not Path(name).expanduser().is_dir():
            raise UserError(f"expected a folder with a model at model.path, found none at {name}; {ADVICE}")
        return str(Path(name).expanduser())
    if not (DEMO_FOLDER / "config.json").exists():
        raise UserError(f"expected the bundled model in {DEMO_FOLDER}, found none; reinstall the package")
    return str(DEMO_FOLDER)
