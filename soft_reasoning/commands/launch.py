"""The one Hydra main: composes what a command line describes and gives it to a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from soft_reasoning.commands.starting import Ended, ending
from soft_reasoning.configuration.compose import check, completed
from soft_reasoning.configuration.errors import one_line
from soft_reasoning.configuration.folder import SWEEP_VARIABLE, conf_dir, register_resolvers
from soft_reasoning.configuration.options import spelled
from soft_reasoning.engines.devices import is_out_of_memory
from soft_reasoning.types import UserError

SWEEP = ("-m", "--multirun")
OUT_OF_MEMORY = (
    "expected more memory, and it ran out; the same command continues with what is stored: take fewer "
    "problems at a time (max_live), candidates (search.candidates) or tokens (max_new_tokens)"
)


def launch(command: Callable[[DictConfig, Path], None], words: Sequence[str]) -> None:
    """Call ``command`` with the configuration of ``words`` and its folder, once per job of a sweep."""

    def task(config: DictConfig) -> None:
        with one_line_errors():  # here too: Hydra prints a line of its own about exceptions that reach it
            folder = Path(HydraConfig.get().runtime.output_dir)
            with _unless_empty(folder):
                check(config)
                command(config, folder)

    register_resolvers()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us instead of to Hydra's own printing
    with one_line_errors():
        overrides = completed(spelled([_override(word) for word in words if word not in SWEEP]))
        sys.argv[1:] = [*(["--multirun"] if {*SWEEP} & {*words} else []), *overrides]  # the flag comes first
        os.environ.setdefault(SWEEP_VARIABLE, sweep_name(overrides))
        hydra.main(version_base="1.3", config_path=conf_dir(), config_name="config")(task)()


def _override(word: str) -> str:
    """Return ``word`` unless it is an option in the form ``--key`` or ``--key=value``.

    Raises:
        UserError: For such an option.
    """
    key, equals, value = word.removeprefix("--").partition("=")
    config = OmegaConf.load(Path(conf_dir()) / "config.yaml")
    if word.startswith("--") and key.replace("-", "_").partition(".")[0] in config:
        example = f"{key.replace('-', '_')}={value if equals else 'VALUE'}"
        raise UserError(f"{word}: expected options without dashes, such as {example}")
    return word


def sweep_name(overrides: Sequence[str]) -> str:
    """Return the name of a sweep's folder: its overrides without the keys excluded from folder names."""
    config = OmegaConf.load(Path(conf_dir()) / "config.yaml")
    excluded = config.hydra.job.config.override_dirname.exclude_keys
    keys = {word: word.lstrip("+~").partition("=")[0] for word in overrides}
    return ",".join(
        sorted(word for word in overrides if not any(fnmatchcase(keys[word], key) for key in excluded))
    )


@contextmanager
def _unless_empty(folder: Path) -> Iterator[None]:
    """Remove ``folder`` at the end if it is empty; Hydra creates it before a run is accepted."""
    try:
        yield
    finally:
        with suppress(OSError):  # it holds something
            if folder.resolve() != Path.cwd():
                folder.rmdir()


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn bad input into one line and exit code 2.

    Ctrl-C, SIGTERM and SIGHUP become one line and 128 plus the number of the signal.
    """
    try:
        with ending():
            yield
    except KeyboardInterrupt as error:
        with suppress(OSError):  # the terminal has gone
            print(
                f"soft_reasoning: ended by {error or 'Ctrl-C'}; the same command continues", file=sys.stderr
            )
        sys.exit(error.code if isinstance(error, Ended) else 130)
    except BrokenPipeError:  # the reader of our output, such as head, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        if (line := one_line(error)) is not None:
            refuse(line)
        if is_out_of_memory(error):
            refuse(OUT_OF_MEMORY)
        if not isinstance(error, OSError) or error.filename is None:
            raise
        refuse(f"{error.strerror}: {error.filename}; choose another folder with hydra.run.dir=")


def refuse(message: str) -> NoReturn:
    """End the command with one line and exit code 2."""
    print(f"soft_reasoning: {message}", file=sys.stderr)
    sys.exit(2)
