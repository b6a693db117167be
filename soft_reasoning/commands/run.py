"""The command line: python -m soft_reasoning.run [group=choice] [key=value] [-m for sweeps]."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from soft_reasoning.analysis.viewer.run import GREEDY
from soft_reasoning.commands.starting import Ended, ending
from soft_reasoning.commands.sweep import combine_ended
from soft_reasoning.configuration.build import (
    build_dataset,
    build_launcher,
    build_method,
    build_tracker,
    engine_settings,
    plain,
)
from soft_reasoning.configuration.compose import (
    SWEEP_VARIABLE,
    check,
    completed,
    compose_config,
    conf_dir,
    methods_of,
    one_line,
    register_resolvers,
    replaced_parts,
    run_name,
    user_error,
)  # fmt: skip
from soft_reasoning.engines.devices import is_out_of_memory
from soft_reasoning.evaluation.budget import equal_samples
from soft_reasoning.evaluation.compare import PREFERRED
from soft_reasoning.evaluation.files import PROBES
from soft_reasoning.evaluation.report import compare
from soft_reasoning.evaluation.runner import Summary, run
from soft_reasoning.launchers import Launcher
from soft_reasoning.types import UserError

OUT_OF_MEMORY = (
    "expected more memory, and it ran out; the same command continues with what is stored: take fewer "
    "problems at a time (max_live), candidates (search.candidates) or tokens (max_new_tokens)"
)


def run_one(config: DictConfig, folder: Path, launcher: Launcher, *, tracked: bool = True) -> Summary:
    """Run one method on one data set into ``folder``, followed by the tracker unless not ``tracked``."""
    build_method(config)  # a bad value is refused before anything is loaded
    tracker = build_tracker(config) if tracked else None
    dataset = build_dataset(config)
    problems = dataset.problems(config.seed)
    solver = launcher.start(config, problems, dataset.exemplars(config.seed))
    return run(
        problems, solver, folder, plain(config),
        fresh=config.fresh, progress=config.progress, tracker=tracker,
    )  # fmt: skip


def run_comparison(config: DictConfig, folder: Path, launcher: Launcher) -> None:
    """Run several methods on the same problems, each into its own folder.

    The greedy method runs first, because the pages of the others show where they leave its completions. The
    reference comes next. Methods that can share an engine run one after the other. Under ``budget=equal`` a
    method with ``samples`` first runs with its own number into ``PROBES``, and then with the number that
    ``equal_samples`` computes from that.
    """
    overrides, equal = list(HydraConfig.get().overrides.task), config.budget == "equal"
    commands = {
        label: [*overrides, f"method={name}", *changes]
        for label, (name, changes) in methods_of(config).items()
    }

    def composed(label: str, *change: str) -> DictConfig:
        one = compose_config([*commands[label], *change])
        one.label = label
        return one

    configs = {label: composed(label) for label in commands}
    if config.reference is not None and config.reference not in configs:
        raise UserError(f"reference: expected one of {', '.join(configs)}, got {config.reference}")
    for label, one in configs.items():  # the last method's bad value before the first one's work
        build_method(one)
        presets = [change.partition("=")[2] for change in commands[label] if change.startswith("preset=")]
        if commands[label] != overrides and presets:
            say_replaced(commands[label], presets[-1])
    engines = {label: engine_settings(one) for label, one in configs.items()}
    ours = [label for label in configs if configs[label].method.name == PREFERRED]
    first = PREFERRED if PREFERRED in ours else [*ours, *configs][0]
    settings = [engines[first], *engines.values()]
    done: dict[str, Summary] = {}

    def order(label: str) -> tuple[int, bool, bool]:
        return settings.index(engines[label]), configs[label].method.name != GREEDY, label != first

    for label in sorted(configs, key=order):
        one, name = configs[label], label.replace(" ", ",")
        if equal and label != first and "samples" in one.method:
            probe = f"{name},method.samples={one.method.samples}"
            tried = run_one(one, folder / PROBES / run_name(probe), launcher, tracked=False)
            change = f"method.samples={equal_samples(tried.metrics, one.method.samples, done[first].metrics)}"
            one, name = composed(label, change), f"{name},{change}"
        done[label] = run_one(one, folder / run_name(name), launcher)
    compare([done[label].folder for label in configs], folder, reference=config.reference)


def say_replaced(overrides: Sequence[str], preset: str) -> None:
    """Print to standard error which parts of the preset the command line replaces."""
    for line in replaced_parts(overrides, preset):
        print(f"soft_reasoning: {line}", file=sys.stderr)


@contextmanager
def unless_empty(folder: Path) -> Iterator[None]:
    """Remove ``folder`` at the end if it is empty; Hydra creates it before a run is accepted."""
    try:
        yield
    finally:
        with suppress(OSError):  # it holds something
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
    except (HydraException, OmegaConfBaseException) as error:  # some are OSErrors as well
        _refuse(one_line(error))
    except MemoryError:
        _refuse(OUT_OF_MEMORY)
    except OSError as error:
        if error.filename is None:
            raise
        _refuse(f"{error.strerror}: {error.filename}; choose another folder with hydra.run.dir=")
    except Exception as error:
        if user_error(error) is None and not is_out_of_memory(error):
            raise
        _refuse(OUT_OF_MEMORY if user_error(error) is None else one_line(error))


def _refuse(message: str) -> NoReturn:
    print(f"soft_reasoning: {message}", file=sys.stderr)
    sys.exit(2)


@hydra.main(version_base="1.3", config_path=conf_dir(), config_name="config")
def hydra_main(config: DictConfig) -> None:
    """Run what the composed configuration describes."""
    with one_line_errors():  # here too: Hydra prints a line of its own about exceptions that reach it
        folder = Path(HydraConfig.get().runtime.output_dir)
        with unless_empty(folder):
            check(config)
            choices = HydraConfig.get().runtime.choices
            say_replaced(HydraConfig.get().overrides.task, choices.get("preset", "default"))
            with closing(build_launcher(config)) as launcher:
                if config.methods is None:
                    run_one(config, folder, launcher)
                else:
                    run_comparison(config, folder, launcher)


def sweep_name(overrides: Sequence[str]) -> str:
    """Return the name of a sweep's folder: its overrides without the keys excluded from folder names."""
    config = OmegaConf.load(Path(conf_dir()) / "config.yaml")
    unnamed = config.hydra.job.config.override_dirname.exclude_keys

    def named(one: str) -> bool:
        key = one.lstrip("+~").partition("=")[0]
        return not any(fnmatchcase(key, other) for other in unnamed)

    return ",".join(sorted(filter(named, overrides)))


def main() -> None:
    """Run the command line."""
    register_resolvers()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us instead of to Hydra's own printing
    sweep = {"-m", "--multirun"}
    overrides = [a for a in sys.argv[1:] if a not in sweep]
    several = len(overrides) < len(sys.argv) - 1
    overrides = completed(overrides)
    sys.argv[1:] = [*(["--multirun"] if several else []), *overrides]  # Hydra expects the flag first
    os.environ.setdefault(SWEEP_VARIABLE, sweep_name(overrides))
    with one_line_errors():
        hydra_main()
        combine_ended()
