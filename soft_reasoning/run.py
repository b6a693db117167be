"""The command line: python -m soft_reasoning.run [group=choice] [key=value] [-m for sweeps]."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from soft_reasoning.build import (
    build_context,
    build_dataset,
    build_engine,
    build_method,
    check_lengths,
    engine_settings,
)  # fmt: skip
from soft_reasoning.config import (
    SWEEP_VARIABLE,
    compose_config,
    conf_dir,
    one_line,
    register_resolvers,
    run_name,
    user_error,
)  # fmt: skip
from soft_reasoning.evaluation.report import compare
from soft_reasoning.evaluation.runner import run


def run_one(config: DictConfig, folder: Path, engine=None) -> None:
    """One method on one data set, into ``folder``."""
    method = build_method(config)
    dataset = build_dataset(config)
    problems = dataset.problems(config.seed)
    engine = engine or build_engine(config)
    context = build_context(config, engine, dataset.exemplars(config.seed))
    check_lengths(problems, context)
    run(
        problems, method, context, folder, OmegaConf.to_container(config, resolve=True),
        fresh=config.fresh, progress=config.progress, max_live=config.max_live,
    )  # fmt: skip


def run_comparison(config: DictConfig, folder: Path) -> None:
    """Several methods on the same problems, each in a folder of its own; those that can share an engine do,
    and one engine is held at a time."""
    overrides = list(HydraConfig.get().overrides.task)
    configs = {}
    for choice in config.methods:
        name, *changes = [choice] if isinstance(choice, str) else choice
        label = ",".join([name, *changes])
        configs[label] = compose_config([*overrides, f"method={name}", *changes])
    waiting = dict(configs)
    while waiting:
        first = next(iter(waiting.values()))
        alike = [label for label, one in waiting.items() if engine_settings(one) == engine_settings(first)]
        engine = build_engine(first)
        for label in alike:
            run_one(waiting.pop(label), folder / run_name(label), engine)
        engine.close()
    compare([folder / run_name(label) for label in configs], folder)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Bad input becomes one line on standard error and exit code 2; an interrupt exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, such as head, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (HydraException, OmegaConfBaseException) as error:  # some are OSErrors as well
        _refuse(one_line(error))
    except OSError as error:
        if error.filename is None:
            raise
        _refuse(f"{error.strerror}: {error.filename}; choose another folder with hydra.run.dir=")
    except Exception as error:
        if user_error(error) is None:
            raise
        _refuse(one_line(error))


def _refuse(message: str) -> NoReturn:
    print(f"soft_reasoning: {message}", file=sys.stderr)
    sys.exit(2)


@hydra.main(version_base="1.3", config_path=conf_dir(), config_name="config")
def hydra_main(config: DictConfig) -> None:
    with one_line_errors():  # here too: Hydra prints a line of its own about exceptions that reach it
        folder = Path(HydraConfig.get().runtime.output_dir)
        if config.get("methods"):
            run_comparison(config, folder)
        else:
            run_one(config, folder)


def main() -> None:
    register_resolvers()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us instead of to Hydra's own printing
    sweep = {"-m", "--multirun"}
    overrides = [a for a in sys.argv[1:] if a not in sweep]
    if len(overrides) < len(sys.argv) - 1:  # Hydra wants the flag before the overrides
        sys.argv[1:] = ["--multirun", *overrides]
    os.environ.setdefault(
        SWEEP_VARIABLE, ",".join(sorted(a for a in overrides if not a.startswith("fresh=")))
    )
    with one_line_errors():
        hydra_main()


if __name__ == "__main__":
    main()
