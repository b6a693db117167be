"""What ``run`` and ``compare`` do once their options are accepted: a method, or several, on a data set."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from soft_reasoning.configuration.build import build_method, built, plain
from soft_reasoning.configuration.compose import compared_methods, compose_config, run_name
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.reports.compare import compare
from soft_reasoning.lab.reports.report import summary, write_report
from soft_reasoning.lab.reports.run_groups import PREFERRED
from soft_reasoning.lab.runs.files import PAGE, PROBES
from soft_reasoning.lab.runs.manifest import tokens_scale_with_samples
from soft_reasoning.lab.runs.metrics import equal_samples
from soft_reasoning.lab.runs.runner import Launcher, Summary, run
from soft_reasoning.lab.runs.signals import check_signals
from soft_reasoning.method.soft_token import SoftToken
from soft_reasoning.types import UserError


def run_one(
    config: DictConfig,
    folder: Path,
    launcher: Launcher,
    *,
    words: Sequence[str] = (),
    tracked: bool = True,
) -> Summary:
    """Run one method on one data set into ``folder``.

    Args:
        config: The configuration.
        folder: The run's folder.
        launcher: Starts the engine.
        words: The options of the run's command.
        tracked: Whether a tracker follows the run.
    """
    check_signals()
    method = build_method(config)  # refuses bad values before anything is loaded
    tracker = built(config, "logging") if tracked and config.logging else None
    dataset = build_dataset(config)
    problems = dataset.problems()
    if isinstance(method, SoftToken):
        method.learnt.check_unseen(problems)
    check_signals()
    solver = launcher.start(config, problems, dataset.exemplars())
    check_signals()
    return run(
        problems,
        solver,
        folder,
        plain(config),
        words=words,
        fresh=config.fresh,
        progress=config.progress,
        tracker=tracker,
        report=write_report,
    )


def run_comparison(config: DictConfig, folder: Path, launcher: Launcher) -> None:
    """Run several methods on the same problems, each into its own folder.

    The reference comes first, and methods that can share an engine run one after the other. Under
    ``budget=equal`` a method with ``samples`` first runs with its configured number into ``PROBES``, and then
    with the number that ``equal_samples`` computes from that run.
    """
    words, equal = list(HydraConfig.get().overrides.task), config.budget == "equal"
    commands = {label: [*words, *changes] for label, changes in compared_methods(config).items()}

    def compose_method(label: str, *change: str) -> DictConfig:
        config = compose_config([*commands[label], *change])
        config.label = label
        return config

    configs = {label: compose_method(label) for label in commands}
    if config.reference is not None and config.reference not in configs:
        raise UserError(f"reference: expected one of {', '.join(configs)}, got {config.reference}")
    for method in configs.values():  # refuses bad values of every method before any work
        build_method(method)
    engines = {label: plain(method.engine) for label, method in configs.items()}
    preferred = [label for label in configs if configs[label].method.name == PREFERRED]
    first = PREFERRED if PREFERRED in preferred else [*preferred, *configs][0]
    settings = [engines[first], *engines.values()]
    summaries: dict[str, Summary] = {}

    for label in sorted(configs, key=lambda label: (settings.index(engines[label]), label != first)):
        method, name = configs[label], label.replace(" ", ",")
        if equal and label != first and tokens_scale_with_samples(plain(method)["method"]):
            probe = f"{name},k={method.method.samples}"
            probed = run_one(
                method, folder / PROBES / run_name(probe), launcher, words=commands[label], tracked=False
            )
            samples = equal_samples(probed.metrics, method.method.samples, summaries[first].metrics)
            change = f"k={samples}"
            method, name = compose_method(label, change), f"{name},{change}"
        summaries[label] = run_one(method, folder / run_name(name), launcher, words=commands[label])
    compare([summaries[label].folder for label in configs], folder, reference=config.reference)


def run_configured(config: DictConfig, folder: Path) -> None:
    """Run the configured method or comparison."""
    with closing(built(config, "launcher")) as launcher:
        if config.methods is None:
            finished = run_one(config, folder, launcher, words=list(HydraConfig.get().overrides.task))
            print(f"{summary(finished.folder)}\n\n{finished.folder / PAGE}")
        else:
            run_comparison(config, folder, launcher)
