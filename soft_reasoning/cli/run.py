"""The commands ``run``, ``compare`` and ``sweep``: methods on a data set."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from soft_reasoning.cli.compose import checked_method, compose_choices, methods_of, plain
from soft_reasoning.cli.launch import Job, launch, one_line_errors, refuse
from soft_reasoning.configuration.parts import make
from soft_reasoning.engine.paths import is_missing
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.reports.comparison import combine, compare
from soft_reasoning.lab.reports.frame import default_reference
from soft_reasoning.lab.reports.report import summary, write_report
from soft_reasoning.lab.runs.files import BUDGET_RUNS, PAGE, Json
from soft_reasoning.lab.runs.manifest import method_name, tokens_scale_with_samples
from soft_reasoning.lab.runs.metrics import equal_samples
from soft_reasoning.lab.runs.naming import run_name, typed_keys
from soft_reasoning.lab.runs.runner import Launcher, run
from soft_reasoning.task.learnt import Learnt
from soft_reasoning.types import UserError

COMPARE = """\
soft-reasoning compare METHOD METHOD ... [options of soft-reasoning run]

Runs the methods on the same problems with the same prompts, grader and seed, and writes comparison.md.
A method may bring options in quotes: "soft_reasoning preset=paper". budget=equal gives methods
that only sample as many tokens as soft_reasoning. The options: soft-reasoning run --help."""


class Launchers:
    """Runs the jobs of a command; the models of a job stay loaded for the next if that needs the same."""

    def __init__(self) -> None:
        self._launcher: Launcher | None = None
        self._settings: Any = None

    def run(self, job: Job) -> None:
        """Run the configured method or comparison."""
        config = plain(job.config)
        settings = config["launcher"], config["engine"], config.get("verifier", {}).get("model")
        if (launcher := self._launcher) is None or self._settings != settings:
            self.close()
            self._launcher = launcher = make(config["launcher"], "launcher")
            self._settings = settings
        try:
            if config["methods"] is None:
                run_one(job.config, job.folder, launcher, words=job.words, chosen=job.chosen)
                print(f"{summary(job.folder)}\n\n{job.folder / PAGE}")
            else:
                run_comparison(job, launcher)
        finally:
            if not job.shared:  # the next job is elsewhere
                self.close()

    def close(self) -> None:
        """Free the models."""
        if self._launcher is not None:
            self._launcher.close()
            self._launcher = None


def run_one(
    composed: DictConfig,
    folder: Path,
    launcher: Launcher,
    *,
    words: Sequence[str] = (),
    chosen: Mapping[str, str] | None = None,
) -> Json:
    """Run one method on one data set into ``folder``; return its metrics.

    Args:
        composed: The configuration.
        folder: The run's folder.
        launcher: Starts the engine.
        words: The options of the run's command.
        chosen: The name of each group's choice.
    """
    method = checked_method(composed)  # refuses bad values before anything is loaded
    config = plain(composed)
    dataset, model = build_dataset(config), config["model"]["path"]
    try:
        problems = dataset.problems()
    except UserError as error:
        also = f"; the weights of {model} are missing, too: model=<local folder>" if is_missing(model) else ""
        raise UserError(f"{error}{also}") from error
    parts = method, getattr(method, "verifier", None)
    files = [getattr(part, name, None) for part in parts for name in ("point", "probe")]
    for learnt in files:
        if isinstance(learnt, Learnt):
            learnt.check_unseen(problems)
    metrics = run(
        problems,
        launcher,
        make(config["grader"], "grader"),
        folder,
        config,
        exemplars=dataset.exemplars(),
        about={"command": shlex.join(["soft-reasoning", "run", *words]), "choices": {**(chosen or {})}},
    )
    for note in write_report(folder):
        print(note, file=sys.stderr)
    return metrics


def run_comparison(job: Job, launcher: Launcher) -> None:
    """Run several methods on the same problems, each into its own folder.

    The method whose tokens ``budget=equal`` gives the others comes first, and methods that can share an
    engine run one after the other. Under ``budget=equal`` a method with ``samples`` first runs with its
    configured number into ``BUDGET_RUNS``, and then with the number that ``equal_samples`` computes from it.
    """
    folder, equal, reference = job.folder, job.config.budget == "equal", job.config.reference
    commands = {label: [*job.words, *changes] for label, changes in methods_of(job.config).items()}
    chosen: dict[str, dict[str, str]] = {}

    def compose_method(label: str, *change: str) -> DictConfig:
        config, chosen[label] = compose_choices([*commands[label], *change])
        config.label = label
        return config

    def run_method(label: str, folder: Path, *change: str) -> Json:
        typed = own_words(commands[label], *change)
        return run_one(configs[label], folder, launcher, words=typed, chosen=chosen[label])

    configs = {label: compose_method(label) for label in commands}
    if reference is not None and reference not in configs:
        raise UserError(f"reference: expected one of {', '.join(configs)}, got {reference}")
    for config in configs.values():  # refuses bad values of every method before any work
        checked_method(config)
    settings = {label: plain(config) for label, config in configs.items()}
    first = default_reference({label: method_name(config) for label, config in settings.items()})
    engines = [settings[first]["engine"], *(config["engine"] for config in settings.values())]
    metrics: dict[str, Json] = {}
    folders: dict[str, Path] = {}

    for label in sorted(
        configs, key=lambda label: (engines.index(settings[label]["engine"]), label != first)
    ):
        method, name, change = configs[label].method, label.replace(" ", ","), list[str]()
        if equal and label != first and tokens_scale_with_samples(settings[label]["method"]):
            measuring = folder / BUDGET_RUNS / run_name(f"{name},k={method.samples}")
            measured = run_method(label, measuring)
            change = [f"k={equal_samples(measured, method.samples, metrics[first])}"]
            configs[label], name = compose_method(label, *change), f"{name},{change[0]}"
        folders[label] = folder / run_name(name)
        metrics[label] = run_method(label, folders[label], *change)
    compare([folders[label] for label in configs], folder)


def own_words(words: Sequence[str], *change: str) -> list[str]:
    """Return the options that run one method of a comparison by itself, as ``change`` alters them.

    A list of ``methods`` that no word names is an experiment's.
    """
    dropped = {"methods", "budget", "reference", *typed_keys(change)}
    keys = typed_keys(words)
    kept = [word for word, key in zip(words, keys, strict=True) if key not in dropped]
    return [*kept, *change, *([] if "methods" in keys else ["methods=null"])]


def main(words: Sequence[str]) -> None:
    """Run the command line ``run``."""
    with closing(Launchers()) as launchers:
        sweep = launch(launchers.run, words)
    if sweep is not None and sweep.is_dir():  # some of Hydra's flags run nothing
        with one_line_errors():
            combine(sweep)


def sweep_main(words: Sequence[str]) -> None:
    """Run the command line ``sweep``: every combination of values separated by commas."""
    main(["--multirun", *words])


def compare_main(words: Sequence[str]) -> None:
    """Run the command line ``compare``: the named methods on the same problems."""
    if {"-h", "--help"} & {*words}:
        print(COMPARE)
        return
    names = [*takewhile(lambda word: word.strip() and "=" not in word.split()[0] and word[0] != "-", words)]
    if len(names) < 2:
        refuse(
            f"compare: expected two methods or more before the options, got {' '.join(names) or 'none'}; "
            "name them: compare cot soft_reasoning"
        )
    entries: list[str] = []
    for name, *changes in map(str.split, names):
        quoted = [f"'{change}'" for change in changes]
        entries.append(f"[{','.join([name, *quoted])}]" if changes else name)
    main([f"methods=[{','.join(entries)}]", *words[len(names) :]])
