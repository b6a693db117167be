"""The only Hydra main: composes the configuration of a command line and passes it to a command."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from soft_reasoning.checks import OptionError
from soft_reasoning.cli.compose import check_config, chosen_names, compose_config, methods_of, typed_error
from soft_reasoning.cli.errors import check_words, one_line
from soft_reasoning.configuration.data import conf_dir
from soft_reasoning.lab.runs.files import OTHER_FOLDER
from soft_reasoning.lab.runs.naming import run_name, typed_keys
from soft_reasoning.types import UserError

SWEEP = ("-m", "--multirun")
VALUED = (
    *("--cfg", "-c", "--package", "-p", "--info", "-i", "--experimental-rerun"),
    *("--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd"),
)
"""Hydra's flags whose value may be the next word."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a full disk, which an open file reports without its name."""
OUT_OF_MEMORY = (
    "Out of memory. The same command continues with what is stored; use fewer problems at a time "
    "(max_live), candidates (k) or tokens (max_new_tokens)"
)


@dataclass(frozen=True)
class Job:
    """What a command line asks for, once per job of a sweep.

    Attributes:
        config: The checked configuration.
        folder: The job's folder.
        words: The options that were typed.
        chosen: The name of each group's choice.
        shared: Whether the next job runs in the same process, so that models may stay loaded.
    """

    config: DictConfig
    folder: Path
    words: Sequence[str]
    chosen: Mapping[str, str]
    shared: bool


def launch(command: Callable[[Job], None], words: Sequence[str]) -> Path | None:
    """Call ``command`` for each job of a command line; return the folder of a sweep."""
    sweep = None

    def task(config: DictConfig) -> None:
        with one_line_errors(OTHER_FOLDER):  # here too: Hydra prints a line about exceptions that reach it
            now = HydraConfig.get()
            folder, typed = Path(now.runtime.output_dir), list(now.overrides.task)
            chosen = chosen_names(now.runtime.choices)
            shared = now.runtime.choices["hydra/launcher"] == "basic"
            try:
                check_config(config, typed, chosen)
                command(Job(config, folder, typed, chosen, shared))
            except OptionError as error:
                raise typed_error(error, config) from error
            finally:
                with suppress(OSError):  # Hydra creates it before a run is accepted
                    if folder.resolve() != Path.cwd():
                        folder.rmdir()  # fails unless it is empty
                        Path("runs").rmdir()

    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra passes errors on instead of printing them
    logging.getLogger("huggingface_hub").propagate = False  # it prints its own lines
    with one_line_errors(OTHER_FOLDER):
        check_words(words)
        for key, word in zip(typed_keys(words), words, strict=True):
            folder = word.partition("=")[2].strip("'\" ")
            if key.startswith("hydra.") and key.endswith("dir") and folder in ("", "null"):
                raise UserError(f"{key}: expected a whole path, got none; . is this folder")
            if key == "hydra.sweep.dir":
                sweep = folder
        flags = [b for a, b in pairwise(["", *words]) if b.startswith("-") or a in VALUED]
        options = [word for word in words if word not in flags]
        if {*SWEEP} & {*words} and sweep is None:
            sweep = f"runs/{run_name('sweep', sweep_name(options))}"
            options.append(f"hydra.sweep.dir='{sweep}'")
        if " ".join(flags) in ("--cfg job", "-c job", "--cfg=job"):  # without parts that are not read
            config = compose_config(options)
            print("" if (rows := methods_of(config)) else OmegaConf.to_yaml(config), end="")
            for label, changes in rows.items():
                print(f"--- # {label}\n{OmegaConf.to_yaml(compose_config([*options, *changes]))}", end="")
            return None
        options = [] if "--hydra-help" in flags else options  # which its help does not read
        sys.argv[1:] = [*options, *flags]  # all that hydra.main reads; no option may follow a flag
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(task)()
    return None if not {*SWEEP} & {*words} or sweep is None else Path(sweep)


def sweep_name(options: Sequence[str]) -> str:
    """Return the name of a sweep's folder: its options without the keys excluded from folder names."""
    config = OmegaConf.load(conf_dir() / "config.yaml")
    excluded = config.hydra.job.config.override_dirname.exclude_keys
    keys = typed_keys(options)
    named = [
        option
        for option, key in zip(options, keys, strict=True)
        if "=" in option and not any(fnmatchcase(key, pattern) for pattern in excluded)
    ]
    return ",".join(sorted(named))


def refuse_unread(command: str, words: Sequence[str], unread: Sequence[str]) -> None:
    """Refuse an option among ``unread``, or of a group there, which ``command`` does not read.

    Raises:
        UserError: For the first such option.
    """
    for key in typed_keys(words):
        if f"{key}.".startswith(tuple(f"{name}." for name in unread)):
            raise UserError(f"{key}: expected an option that soft-reasoning {command} reads; leave it out")


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
