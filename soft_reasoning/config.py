"""Composing the configuration: where conf/ lies, the names of run folders, and errors in one line."""

from __future__ import annotations

import hashlib
import math
import os
import re
import traceback
from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from soft_reasoning.types import UserError

SWEEP_VARIABLE = "SOFT_REASONING_SWEEP"
"""Environment variable that names a sweep's folder, so that the jobs of a launcher agree on it."""


def conf_dir() -> str:
    """conf/ inside an installed wheel, else beside the package (a clone or an editable install)."""
    package = Path(__file__).resolve().parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return str(folder)
    raise UserError(
        f"expected the configuration in {package / 'conf'}, found none; install the package again"
    )


def run_name(*parts: str) -> str:
    """A folder name that the same command always gives: its parts, the long and odd ones hashed."""
    name = "-".join(str(part) for part in parts if part)
    plain = re.sub(r"[^A-Za-z0-9_.=,+-]+", "_", name)
    if plain == name and len(plain) <= 120:
        return plain
    return f"{plain[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def register_resolvers() -> None:
    """Make ``${run_name:...}``, ``${sweep_name:}`` and ``${sqrt:...}`` known to OmegaConf."""
    OmegaConf.register_new_resolver("sqrt", math.sqrt, replace=True)
    OmegaConf.register_new_resolver("run_name", run_name, replace=True)
    OmegaConf.register_new_resolver("sweep_name", lambda: os.environ.get(SWEEP_VARIABLE, ""), replace=True)


def compose_config(overrides: Sequence[str] = ()) -> DictConfig:
    """The configuration under ``overrides``, outside of a command line.

    Raises UserError in one line for a choice or key that does not exist.
    """
    register_resolvers()
    try:
        if GlobalHydra.instance().is_initialized():
            return compose("config", overrides=list(overrides))
        with initialize_config_dir(version_base="1.3", config_dir=conf_dir()):
            return compose("config", overrides=list(overrides))
    except Exception as error:
        raise UserError(one_line(error)) from error


def user_error(error: BaseException) -> UserError | None:
    """The UserError among ``error`` and its causes (Hydra wraps what a constructor raises), or what a
    launcher says of a job or a machine that failed it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return launcher_fault(error)


def launcher_fault(error: BaseException) -> UserError | None:
    """An error that submitit raised: the failed job's own last line where it has one."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or "submitit" not in Path(frames[-1].filename).parts:
        return None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line.removeprefix("soft_reasoning: ") for line in lines if line.startswith("soft_reasoning: ")]
    if own:
        return UserError(own[-1])
    return UserError(f"hydra/launcher: {lines[0]} On one machine use hydra/launcher=joblib")


def one_line(error: BaseException) -> str:
    """The message of a configuration error on one line, without empty parts."""
    text = str(user_error(error) or error).partition("Config search path")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("full_key:", "object_type="))]
    message = re.sub(r":,? ", ": ", ", ".join(lines))
    if re.search(r"Could not find 'hydra/launcher/(joblib|submitit)", message):
        message += "; pip install 'soft-reasoning[launchers]' brings it"
    return message
