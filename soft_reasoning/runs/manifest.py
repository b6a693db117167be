"""How a run was made: its configuration, and the versions, model and device."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from soft_reasoning.engines.abilities import ShowsModel
from soft_reasoning.engines.weights import weights_mark
from soft_reasoning.runs.flops import rates
from soft_reasoning.runs.settings import IGNORED, flatten, result_keys
from soft_reasoning.types import UserError

PACKAGES = ("soft-reasoning", "torch", "transformers", "botorch", "gpytorch")
ENVIRONMENT = ("git_commit", "versions", "model", "device")
"""The manifest's entries that may differ on a resume, with a note."""


def config_hash(config: Mapping[str, Any], ignore: Sequence[str] = IGNORED) -> str:
    """Return twelve hexadecimal digits that change with any key that results depend on."""
    text = json.dumps(result_keys(config, ignore), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def refuse_changes(
    old: Mapping[str, Any], new: Mapping[str, Any], folder: Path, ignore: Sequence[str] = IGNORED
) -> None:
    """Check that ``new`` would give the results already in ``folder``.

    Raises:
        UserError: If it would not; it names each changed key.
    """
    before, after = (json.loads(json.dumps(result_keys(c, ignore), default=str)) for c in (old, new))
    changes = [
        f"{key}: {_shown(before, key)} -> {_shown(after, key)}"
        for key in sorted(before | after)
        if before.get(key) != after.get(key) or (key in before) != (key in after)
    ]
    if changes:
        raise UserError(
            f"{folder} holds results of another configuration ({'; '.join(changes)}); "
            "restore these values, start over with fresh=true, or choose another folder with hydra.run.dir="
        )


def refuse_weights(old: Mapping[str, Any], new: Mapping[str, Any], folder: Path) -> None:
    """Check that the manifests of the results in ``folder`` (``old``) and of this run agree on the weights.

    Raises:
        UserError: If both have a fingerprint of the weights and the two differ.
    """
    before, after = ((manifest.get("model") or {}).get("weights") for manifest in (old, new))
    if before and after and before != after:
        raise UserError(
            f"{folder} holds results of other weights of {new['model']['path']} ({before} -> {after}); "
            "restore them, start over with fresh=true, or choose another folder with hydra.run.dir="
        )


def plugin_sources(config: Any) -> dict[str, str]:
    """Return a hash of the source of each loaded module of the user's that ``config`` names."""
    found: dict[str, str] = {}
    own = Path(__file__).resolve().parents[1]
    for name in flatten(config).values():
        if not isinstance(name, str) or not re.fullmatch(r"\w+(\.\w+)+", name):
            continue
        parts = name.split(".")
        modules = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        module = next((one for one in modules if one in sys.modules), None)
        file = getattr(sys.modules.get(module or ""), "__file__", None)
        if module is None or file is None:
            continue
        path = Path(file).resolve()
        installed = {"site-packages", "dist-packages"} & {*path.parts} or own in path.parents
        installed = installed or module.partition(".")[0] in sys.stdlib_module_names
        if not installed and path.is_file():
            found[module] = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return dict(sorted(found.items()))


def refuse_plugins(old: Mapping[str, Any], new: Mapping[str, Any], folder: Path) -> None:
    """Check that the user's modules are those that the results in ``folder`` were made with.

    Raises:
        UserError: If the source of one has changed.
    """
    before, after = (manifest.get("plugins") or {} for manifest in (old, new))
    changed = [name for name in after if name in before and before[name] != after[name]]
    if changed:
        raise UserError(
            f"{folder} holds results of another version of {', '.join(changed)}; restore its source, start "
            "over with fresh=true, or choose another folder with hydra.run.dir="
        )


def _shown(flat: Mapping[str, Any], key: str) -> str:
    return json.dumps(flat[key], ensure_ascii=False) if key in flat else "absent"


def manifest_of(
    config: Mapping[str, Any], ignore: Sequence[str] = IGNORED, about: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the manifest of a run that begins now; ``about`` adds the caller's entries (model, device)."""
    return {
        "config_hash": config_hash(config, ignore),
        "git_commit": git_commit(),
        "versions": {"python": platform.python_version(), **versions()},
        "model": None,
        "device": None,
        "plugins": plugin_sources(config),
        **(about or {}),
        "config": json.loads(json.dumps(config, default=str)),
    }


def environment_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Describe the differences in versions, model files and devices between two manifests."""
    before, after = (flatten({key: m.get(key) for key in ENVIRONMENT}) for m in (old, new))
    return [
        f"{key.removeprefix('versions.')}: {_shown(before, key)} -> {_shown(after, key)}"
        for key in sorted(before | after)
        if before.get(key) != after.get(key)
    ]


def versions() -> dict[str, str | None]:
    """Return the installed version of every package that results may depend on."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # a clone that is not installed
            found[name] = None
    return found


@cache
def git_commit() -> str | None:
    """Return the commit of the package's own clone, ``-dirty`` if files differ; None outside a clone."""
    package = Path(__file__).resolve().parent.parent

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(package), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    if git("ls-files", "--error-unmatch", "types.py") is None:  # installed inside somebody else's clone
        return None
    return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def describe_engine(engine: Any) -> dict[str, Any]:
    """Return model, device and operations (``flops.rates``) of ``engine``, as far as it shows them.

    ``revision`` identifies weights of the hub, ``weights`` those of a folder. ``batch_invariant``: whether a
    request had the same bits alone as among others when the engine tried it; None where it did not try.
    """
    model = engine.model if isinstance(engine, ShowsModel) else None
    config = getattr(model, "config", None)
    parameter = next(iter(model.parameters()), None) if model is not None else None
    path, revision = getattr(config, "_name_or_path", None), getattr(config, "_commit_hash", None)
    return {
        "model": {
            "engine": type(engine).__name__,
            "path": path,
            "revision": revision,
            "weights": weights_mark(path, None) if path and not revision else None,
            "dtype": None if parameter is None else str(parameter.dtype).removeprefix("torch."),
        },
        "device": None if model is None else str(engine.device),
        "batch_invariant": getattr(engine, "batch_invariant", None),
        "flops": rates(model),
    }
