"""What ``run`` and ``compare`` do once their options are accepted: a method, or several, on a data set."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from soft_reasoning.configuration.build import build_method, built, check_values, plain
from soft_reasoning.configuration.compose import (
    as_typed,
    chosen_names,
    compared_methods,
    compose_choices,
    run_name,
    typed_keys,
)
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.reports.comparison import compare
from soft_reasoning.lab.reports.frame import equal_to
from soft_reasoning.lab.reports.report import summary, write_report
from soft_reasoning.lab.runs.files import PAGE, PROBES
from soft_reasoning.lab.runs.manifest import method_name, tokens_scale_with_samples
from soft_reasoning.lab.runs.metrics import equal_samples
from soft_reasoning.lab.runs.runner import Launcher, Summary, run
from soft_reasoning.schedule.learnt import Learnt
from soft_reasoning.types import UserError


def run_one(
    config: DictConfig,
    folder: Path,
    launcher: Launcher,
    *,
    words: Sequence[str] = (),
    chosen: Mapping[str, str] | None = None,
    tracked: bool = True,
) -> Summary:
    """Run one method on one data set into ``folder``.

    Args:
        config: The configuration.
        folder: The run's folder.
        launcher: Starts the engine.
        words: The options of the run's command.
        chosen: The name of each group's choice.
        tracked: Whether a tracker follows the run.
    """
    method = build_method(config)  # refuses bad values before anything is loaded
    tracker = built(config, "logging") if tracked and config.logging else None
    dataset = build_dataset(config)
    problems = dataset.problems()
    parts = method, getattr(method, "verifier", None)
    files = [getattr(part, name, None) for part in parts for name in ("point", "probe")]
    for learnt in files:
        if isinstance(learnt, Learnt):
            learnt.check_unseen(problems)
    return run(
        problems,
        lambda: launcher.start(config, problems, dataset.exemplars(), method),
        built(config, "grader"),
        folder,
        plain(config),
        command=shlex.join(["soft-reasoning", "run", *as_typed(words)]),
        choices=chosen,
        fresh=config.fresh,
        progress=config.progress,
        tracker=tracker,
        report=write_report,
    )


def run_comparison(config: DictConfig, folder: Path, launcher: Launcher) -> None:
    """Run several methods on the same problems, each into its own folder.

    The method whose tokens ``budget=equal`` gives the others comes first, and methods that can share an
    engine run one after the other. Under ``budget=equal`` a method with ``samples`` first runs with its
    configured number into ``PROBES``, and then with the number that ``equal_samples`` computes from that run.
    """
    words, equal = list(HydraConfig.get().overrides.task), config.budget == "equal"
    commands = {label: [*words, *changes] for label, changes in compared_methods(config).items()}

    chosen: dict[str, dict[str, str]] = {}

    def compose_method(label: str, *change: str) -> DictConfig:
        config, chosen[label] = compose_choices([*commands[label], *change])
        config.label = label
        return config

    def run_method(label: str, folder: Path, *change: str, tracked: bool = True) -> Summary:
        typed = own_words(commands[label], *change)
        return run_one(configs[label], folder, launcher, words=typed, chosen=chosen[label], tracked=tracked)

    configs = {label: compose_method(label) for label in commands}
    if config.reference is not None and config.reference not in configs:
        raise UserError(f"reference: expected one of {', '.join(configs)}, got {config.reference}")
    for method in configs.values():  # refuses bad values of every method before any work
        build_method(method)
        check_values(method)
    engines = {label: plain(method.engine) for label, method in configs.items()}
    first = equal_to({label: method_name(plain(method)) for label, method in configs.items()})
    settings = [engines[first], *engines.values()]
    summaries: dict[str, Summary] = {}

    for label in sorted(configs, key=lambda label: (settings.index(engines[label]), label != first)):
        method, name, change = configs[label].method, label.replace(" ", ","), list[str]()
        if equal and label != first and tokens_scale_with_samples(plain(method)):
            probe = folder / PROBES / run_name(f"{name},k={method.samples}")
            probed = run_method(label, probe, tracked=False)
            change = [f"k={equal_samples(probed.metrics, method.samples, summaries[first].metrics)}"]
            configs[label], name = compose_method(label, *change), f"{name},{change[0]}"
        summaries[label] = run_method(label, folder / run_name(name), *change)
    compare([summaries[label].folder for label in configs], folder)


def own_words(words: Sequence[str], *change: str) -> list[str]:
    """Return the options that run one method of a comparison by itself, as ``change`` alters them.

    A list of ``methods`` that no word names is an experiment's.
    """
    dropped = {"methods", "budget", "reference", *typed_keys(change)}
    keys = typed_keys(words)
    kept = [word for word, key in zip(words, keys, strict=True) if key not in dropped]
    return [*kept, *change, *([] if "methods" in keys else ["methods=null"])]


def run_configured(config: DictConfig, folder: Path, launcher: Launcher) -> None:
    """Run the configured method or comparison."""
    if config.methods is None:
        hydra = HydraConfig.get()
        words, chosen = list(hydra.overrides.task), chosen_names(hydra.runtime.choices)
        finished = run_one(config, folder, launcher, words=words, chosen=chosen)
        print(f"{summary(finished.folder)}\n\n{finished.folder / PAGE}")
    else:
        run_comparison(config, folder, launcher)
