"""A run's manifest: its configuration, versions, model and device."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from soft_reasoning.engine.base import Engine
from soft_reasoning.engine.completions import RESOURCES as ENGINE_RESOURCES
from soft_reasoning.engine.completions import version_of
from soft_reasoning.engine.paths import weights_fingerprint
from soft_reasoning.lab.runs.files import Json
from soft_reasoning.types import UserError

RESOURCES = (*(f"engine.{name}" for name in ENGINE_RESOURCES), "model.device_map")
"""Resources of an engine, which may change when a run resumes, for example after memory ran out."""

LIMIT = "dataset.limit"

IGNORED = (
    "fresh",
    "progress",
    "cache",
    "cache_gb",
    "limit",
    LIMIT,
    "max_live",
    "methods",
    "budget",
    "label",
    "reference",
    "launcher",
    "logging",
    "hydra",
    "prompt.answer_type",
    *RESOURCES,
)
"""Keys that change no problem's result.

They concern display, batching and distribution of a run, the number of its problems, and the declared type of
the prompt (its wording counts instead)."""


def flatten(config: Mapping[str, object], prefix: str = "") -> dict[str, Any]:
    """Return ``config`` with dotted keys; lists and empty mappings are values."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def result_keys(config: Mapping[str, object], ignore: Iterable[str] = IGNORED) -> dict[str, Any]:
    """Return the dotted keys that results depend on; ``ignore`` names keys and groups of keys."""
    left_out = tuple(f"{name}." for name in ignore)
    return {
        key: value for key, value in sorted(flatten(config).items()) if not f"{key}.".startswith(left_out)
    }


def setting_keys(config: Mapping[str, object]) -> dict[str, Any]:
    """Return ``result_keys`` without seeds, and the number of problems, which together identify a setting.

    Under ``budget=equal`` the number of samples is left out: it follows from the other keys and differs by
    seed.
    """
    computed = {"k", "method.samples"} if config.get("budget") == "equal" else set[str]()
    keys = result_keys(config, {*IGNORED} - {"limit", LIMIT} | computed)
    return {key: value for key, value in keys.items() if key.rpartition(".")[2] != "seed"}


def method_name(config: Json) -> str:
    """Return the name of a configuration's method; of a class of one's own without a name, the class's."""
    method = config.get("method") or {}
    return str(method.get("name") or str(method.get("_target_")).rpartition(".")[2])


def tokens_scale_with_samples(method: Json) -> bool:
    """Whether the tokens of a configured ``method`` grow in proportion to its ``samples``.

    Tokens of a verifier or of programs do not, nor tokens of a method that may end early.
    """
    silent = method.get("verifier", {}).get("_target_", "NoVerifier").endswith("NoVerifier")
    drawn = method.get("temperature") != 0  # one greedy solution is all there is
    ends_early = "confidence" in method or method.get("stopping", {}).get("rounds", 0)
    return "samples" in method and drawn and silent and not ends_early


URL = re.compile(r"https?://[^\s\"'\\,]+")
PACKAGES = ("soft-reasoning", "torch", "transformers", "botorch", "gpytorch")


def build_manifest(config: Mapping[str, object], about: Json) -> dict[str, Any]:
    """Return the manifest of a new run of ``config``, without the URL of a server: another may continue it.

    Args:
        config: Its configuration.
        about: Further entries: its ``command``, the name of each group's choice (``choices``), and those of
            :func:`describe_engine`.
    """
    manifest = {
        "command": "",
        "choices": {},
        "git_commit": git_commit(),
        "versions": {"python": platform.python_version(), **{name: version_of(name) for name in PACKAGES}},
        "model": None,
        "device": None,
        "plugins": plugin_sources(config) | learnt_sources(config),
        **about,
        "config": config,
    }
    return json.loads(URL.sub("URL", json.dumps(manifest, default=str)))


def check_same_run(old: Json, new: Json, folder: Path) -> None:
    """Check that a run with the manifest ``new`` would reproduce the results in ``folder``.

    Weights and custom modules are compared where both manifests have a fingerprint of them.

    Raises:
        UserError: If it would not; the message names each changed key, weights or modules.
    """
    before, after = (_fingerprints(manifest) for manifest in (old, new))
    shared = before.keys() & after.keys()
    changes = differences(result_keys(old["config"]), result_keys(new["config"]))
    changes += differences(*({name: marks[name] for name in shared} for marks in (before, after)))
    if changes:
        raise UserError(
            f"{folder} holds results of another configuration ({'; '.join(changes)}); restore these, start "
            "over with fresh=true, or choose another folder with hydra.run.dir="
        )


def _fingerprints(manifest: Json) -> dict[str, str]:
    """Known hashes of custom modules and of the weights, by a description."""
    model = manifest["model"] or {}
    marks = {f"source of {name}": mark for name, mark in manifest["plugins"].items()}
    if model.get("weights"):
        marks[f"weights of {model['path']}"] = model["weights"]
    return marks


def environment_changes(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Describe changes that a resumed run may have, with a note: versions, model files and devices."""
    names = ("git_commit", "versions", "model", "device")
    before, after = (flatten({name: manifest[name] for name in names}) for manifest in (old, new))
    return [change.removeprefix("versions.") for change in differences(before, after)]


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """The keys whose values differ, each with its value before and after."""

    def format_value(flat: Mapping[str, object], key: str) -> str:
        return json.dumps(flat[key], ensure_ascii=False) if key in flat else "absent"

    pairs = {key: (format_value(before, key), format_value(after, key)) for key in sorted({*before, *after})}
    return [f"{key}: {old} -> {new}" for key, (old, new) in pairs.items() if old != new]


def plugin_sources(config: Mapping[str, object]) -> dict[str, str]:
    """Return a hash of the source of each loaded custom module that ``config`` names."""
    package, hashes = Path(__file__).resolve().parents[2], {}
    for name in flatten(config).values():
        if not isinstance(name, str) or not re.fullmatch(r"\w+(\.\w+)+", name):
            continue
        parts = name.split(".")
        prefixes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        module = next((prefix for prefix in prefixes if prefix in sys.modules), "")
        path = Path(getattr(sys.modules.get(module), "__file__", None) or "").resolve()
        installed = {"site-packages", "dist-packages"} & {*path.parts} or package in path.parents
        if path.is_file() and not installed and module.partition(".")[0] not in sys.stdlib_module_names:
            hashes[module] = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return dict(sorted(hashes.items()))


def learnt_sources(config: Json) -> dict[str, str]:
    """Return hashes of the files that ``config`` names as its soft tokens and its probe."""
    parts = config.get("method") or {}, config.get("verifier") or {}
    names = [part.get(key) for part in parts for key in ("point", "probe")]
    paths = [Path(name).expanduser() for name in names if name]
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest()[:12] for p in paths if p.is_file()}


@cache
def git_commit() -> str | None:
    """Return the commit of the package's clone, ``-dirty`` if files differ; None outside a clone."""
    git = ["git", "-C", str(Path(__file__).resolve().parents[2])]
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 10, "check": True}
    try:
        # In a clone of another project the package's files are not tracked.
        subprocess.run([*git, "ls-files", "--error-unmatch", "types.py"], **options)
        describe = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run([*git, *describe], **options).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def describe_engine(engine: Engine) -> dict[str, object]:
    """Return model and device of ``engine``, as far as they are known, and ``loaded``, a line about them.

    ``revision`` identifies weights from the hub, ``weights`` those in a folder. ``batch_invariant`` is
    ``Engine.batch_invariant``.
    """
    model, facts = engine.model, engine.facts
    config = getattr(model, "config", None)
    path, revision = getattr(config, "_name_or_path", None), getattr(config, "_commit_hash", None)
    weights = weights_fingerprint(path, None) if path and not revision else None
    if facts:
        path = facts["served"]
        weights = hashlib.sha256(f"{path} {facts['greedy']}".encode()).hexdigest()[:16]
    parameter = next(iter(model.parameters()), None) if model is not None else None
    if model is None or parameter is None:
        told = "; ".join(f"{name} {value}" for name, value in facts.items() if name != "greedy")
        dtype, loaded = None, f"engine {type(engine).__name__} {told}".rstrip()
    else:
        dtype, size = str(parameter.dtype).removeprefix("torch."), model.num_parameters() / 1e6
        threads = f", {torch.get_num_threads()} threads" if parameter.device.type == "cpu" else ""
        name = path or type(model).__name__
        loaded = f"{name}: {size:,.0f} M parameters in {dtype} on {engine.device}{threads}"
    return {
        "model": {
            "engine": type(engine).__name__,
            "path": path,
            "revision": revision,
            "weights": weights,
            "served": {**facts},
            "dtype": dtype,
        },
        "device": None if model is None else str(engine.device),
        "batch_invariant": engine.batch_invariant,
        "loaded": loaded,
    }
