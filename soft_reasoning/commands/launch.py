"""The only Hydra main: composes the configuration of a command line and passes it to a command."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from soft_reasoning.checks import local_path
from soft_reasoning.configuration.choices import conf_dir, known_keys
from soft_reasoning.configuration.compose import (
    compared_methods,
    compose_config,
    prepare,
    quoted,
    read_words,
    run_name,
    settle,
    typed_keys,
)
from soft_reasoning.configuration.errors import not_an_override, one_line
from soft_reasoning.lab.runs.files import OTHER_FOLDER
from soft_reasoning.types import UserError

SWEEP = ("-m", "--multirun")
VALUED = (
    *("--cfg", "-c", "--package", "-p", "--info", "-i", "--experimental-rerun"),
    *("--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd"),
)
"""Hydra's flags whose value may be the next word."""
FOLDERS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a full disk, which an open file reports without its name."""
OUT_OF_MEMORY = (
    "Out of memory. The same command continues with what is stored; use fewer problems at a time "
    "(max_live), candidates (k) or tokens (max_new_tokens)"
)


def launch(command: Callable[[DictConfig, Path], None], words: Sequence[str]) -> Path | None:
    """Call ``command`` with the configuration of ``words`` and its folder, once per job of a sweep.

    Return the folder of a sweep.
    """
    sweep = None

    def task(config: DictConfig) -> None:
        with one_line_errors(OTHER_FOLDER):  # here too: Hydra prints a line about exceptions that reach it
            folder = Path(HydraConfig.get().runtime.output_dir)
            try:
                settle(config, HydraConfig.get().overrides.task)
                command(config, folder)
            finally:
                with suppress(OSError):  # Hydra creates it before a run is accepted
                    if folder.resolve() != Path.cwd():
                        folder.rmdir()  # fails unless it is empty

    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra passes errors on instead of printing them
    logging.getLogger("huggingface_hub").propagate = False  # it prints its own lines
    with one_line_errors(OTHER_FOLDER):
        prepare()
        for word in words:
            key, _, value = word.removeprefix("--").partition("=")
            if word.startswith("--") and key.partition(".")[0] in known_keys():
                raise UserError(f"{word}: expected options without dashes, such as {key}={value or 'VALUE'}")
        flags = [word for word in words if word.startswith("-") or ("=" not in word and word[:1] != "~")]
        for before, word in pairwise(["", *words]):
            bare = word in flags and not word.startswith("-") and before not in VALUED
            if bare or not word.strip() or not typed_keys([word])[0]:
                raise UserError(not_an_override(word))
        options = [read_folder(word) for word in read_words(word for word in words if word not in flags)]
        check_launcher(options)
        if {*SWEEP} & {*flags}:
            dirs = [
                word.partition("=")[2].strip("'\"") for word in options if word.startswith("hydra.sweep.dir=")
            ]
            sweep = dirs[-1] if dirs else f"runs/{run_name('sweep', sweep_name(options))}"
            options.append(f"hydra.sweep.dir={quoted(sweep)}")
        if " ".join(flags) in ("--cfg job", "-c job", "--cfg=job"):  # without parts that are not read
            config = compose_config(options)
            print("" if (rows := compared_methods(config)) else OmegaConf.to_yaml(config), end="")
            for label, changes in rows.items():
                print(f"--- # {label}\n{OmegaConf.to_yaml(compose_config([*options, *changes]))}", end="")
            return None
        sys.argv[1:] = [*options, *flags]  # which hydra.main reads; no option may follow a flag
        hydra.main(version_base="1.3", config_path=conf_dir(), config_name="config")(task)()
    return None if sweep is None else Path(sweep)


def read_folder(option: str) -> str:
    """Return the option with the home directory that a folder of Hydra's begins with.

    Raises:
        UserError: If it names no folder, or one of a sweep that is not the same for all its jobs.
    """
    key, _, value = option.partition("=")
    if key not in FOLDERS:
        return option
    if not (folder := value.strip("'\" ")) or folder == "null":
        raise UserError(f"{key}: expected a folder, got none; . is the current one")
    if key == "hydra.sweep.dir" and "${" in folder:  # processes of a launcher may read another value
        raise UserError(f"{key}: expected a folder, got {folder}; write it without ${{...}}")
    return f"{key}={quoted(local_path(key, folder))}" if folder.startswith("~") else option


def check_launcher(options: Sequence[str]) -> None:
    """Check that Slurm is there if the jobs of a sweep are to run on it.

    Raises:
        UserError: Otherwise.
    """
    for option in options:
        if option.startswith("hydra/launcher=") and "slurm" in option and shutil.which("srun") is None:
            raise UserError(
                f"{option}: expected Slurm on this machine (srun), found none; use "
                "hydra/launcher=submitit_local, joblib or basic"
            )


def sweep_name(options: Sequence[str]) -> str:
    """Return the name of a sweep's folder: its options without the keys excluded from folder names."""
    config = OmegaConf.load(Path(conf_dir()) / "config.yaml")
    excluded = config.hydra.job.config.override_dirname.exclude_keys
    keys = typed_keys(options)
    named = [
        option
        for option, key in zip(options, keys, strict=True)
        if not any(fnmatchcase(key, pattern) for pattern in excluded)
    ]
    return ",".join(sorted(named))


@contextmanager
def one_line_errors(fix: str = "check the path and its disk") -> Generator[None]:
    """Turn bad input into one line and exit code 2; ``fix`` is the advice for a file that cannot be written.

    Ctrl-C and SIGTERM become one line and exit code 130.
    """
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
        yield
    except KeyboardInterrupt:
        print("soft_reasoning: interrupted; the same command continues", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, such as head, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        if (line := one_line(error)) is not None:
            refuse(line)
        from soft_reasoning.engine.devices import is_out_of_memory  # imports torch

        if is_out_of_memory(error):
            refuse(OUT_OF_MEMORY)
        if not isinstance(error, OSError) or (error.filename is None and error.errno not in FULL):
            raise
        place = "" if error.filename is None else f": {error.filename}"
        refuse(f"{error.strerror}{place}; {fix}")


def refuse(message: str) -> NoReturn:
    """End the command with one line and exit code 2."""
    print(f"soft_reasoning: {message}", file=sys.stderr)
    sys.exit(2)
