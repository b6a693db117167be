"""The folder conf/: its place, its choices and keys, and composing a configuration of them."""

from __future__ import annotations

import hashlib
import math
import re
import threading
from collections.abc import Iterable
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from omegaconf import DictConfig, OmegaConf

_COMPOSING = threading.Lock()
"""Hydra's state is global."""
_WORDS = re.compile(r",(?=[~+@/\w.]+=)")
"""The comma between two overrides."""
_FOLDERS = re.compile(r"(?<==).*/(?=[^/])")
"""All components of a path but the last."""


def conf_dir() -> str:
    """Return conf/ inside an installed wheel, or beside the package in a clone or editable install."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return str(folder)
    from soft_reasoning.types import UserError  # imports torch, which shell completion does without

    raise UserError(
        f"expected the configuration in {package / 'conf'}, found none; install the package again"
    )


def composed(overrides: Iterable[object]) -> DictConfig:
    """Return the configuration under exactly these ``overrides``.

    Raises:
        Exception: Hydra's or OmegaConf's, for a choice or key that does not exist.
    """
    words = list(map(str, overrides))
    with _COMPOSING:
        register_resolvers()
        if GlobalHydra.instance().is_initialized():
            return compose("config", overrides=words)
        with initialize_config_dir(version_base="1.3", config_dir=conf_dir()):
            return compose("config", overrides=words)


def choices(group: str) -> list[str]:
    """Return the choices of a group, including those of a ``--config-dir``."""
    if GlobalHydra.instance().is_initialized():
        names = GlobalHydra.instance().config_loader().get_group_options(group, ObjectType.CONFIG)
    else:
        names = [path.stem for path in Path(conf_dir(), group).glob("*.yaml")]
    return sorted(name for name in names if not name.startswith("_"))


def known_keys() -> set[str]:
    """Return the keys allowed at the top of a configuration, with the groups of every --config-dir."""
    conf = Path(conf_dir())
    groups = [folder.name for folder in conf.iterdir() if folder.is_dir()]
    if GlobalHydra.instance().is_initialized():
        groups += GlobalHydra.instance().config_loader().list_groups("")
    return {*groups, *map(str, OmegaConf.load(conf / "config.yaml")), "ray"} - {"defaults", "hydra"}


def run_name(*parts: str) -> str:
    """Return the folder name for ``parts``, the last of which may be overrides; equal parts get equal names.

    ``limit=5,seed=1`` becomes ``limit_5-seed_1``, which shells and addresses of pages take as it is.
    Choices that follow from the other parts are left out. Paths keep their last component. Long and unusual
    names, and names with shortened paths, end in a hash.
    """
    texts = [str(part) for part in parts if part]
    implied = {f"{group}={text}" for text in texts for group in ("dataset", "method")} | {"model=_base"}
    if not any("soft_reasoning" in text or "random_embedding" in text for text in texts):
        implied.add("preset=default")  # methods without presets have no other
    words = [word for text in texts for word in _WORDS.split(text) if word not in implied]
    name, short = ("-".join(group) for group in (words, [_FOLDERS.sub("", word) for word in words]))
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", re.sub(r"[+']", "", short))
    if plain == re.sub("[=,]", "_", name.replace("+", "")) and len(plain) <= 120:
        return plain
    return f"{plain[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def register_resolvers() -> None:
    """Register the resolvers of conf/ with OmegaConf: ``run_name``, ``product`` and the others."""
    OmegaConf.register_new_resolver("product", lambda *factors: math.prod(factors), replace=True)
    OmegaConf.register_new_resolver("sqrt", math.sqrt, replace=True)
    OmegaConf.register_new_resolver("when", lambda holds, value: value if holds else None, replace=True)
    OmegaConf.register_new_resolver("run_name", run_name, replace=True)
