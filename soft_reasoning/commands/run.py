"""The commands ``run``, ``compare`` and ``sweep``: a method on a data set, or several on the same problems.

What takes seconds to import is imported after the options are checked: a wrong one is rejected at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from soft_reasoning.commands.launch import VALUED, launch, one_line_errors, refuse
from soft_reasoning.configuration.compose import typed_keys

if TYPE_CHECKING:
    from soft_reasoning.lab.runs.runner import Launcher

COMPARE = """\
soft-reasoning compare METHOD METHOD ... [options of soft-reasoning run]

Runs the methods on the same problems with the same prompts, grader and seed, and writes comparison.md.
A method may bring options in quotes: "soft_reasoning preset=paper". budget=equal gives methods
that only sample as many tokens as soft_reasoning. The options: soft-reasoning run --help."""


class Jobs:
    """Runs the jobs of a command; the models of a job stay loaded for the next if that needs the same."""

    def __init__(self) -> None:
        self._launcher: Launcher | None = None
        self._settings: Any = None

    def run(self, config: DictConfig, folder: Path) -> None:
        """Run the configured method or comparison."""
        from soft_reasoning.commands.solving import run_configured
        from soft_reasoning.configuration.build import built, plain

        judge = OmegaConf.select(config, "verifier.model")
        settings = plain(config.launcher), plain(config.engine), judge
        if (launcher := self._launcher) is None or self._settings != settings:
            self.close()
            self._launcher = launcher = built(config, "launcher")
            self._settings = settings
        try:
            run_configured(config, folder, launcher)
        finally:
            if HydraConfig.get().runtime.choices["hydra/launcher"] != "basic":  # the next job is elsewhere
                self.close()

    def close(self) -> None:
        """Free the models."""
        if self._launcher is not None:
            self._launcher.close()
            self._launcher = None


def main(words: Sequence[str]) -> None:
    """Run the command line ``run``."""
    with closing(Jobs()) as jobs:
        sweep = launch(jobs.run, words)
    if sweep is not None and sweep.is_dir():  # some of Hydra's flags run nothing
        with one_line_errors():
            from soft_reasoning.lab.reports.comparison import combine

            combine(sweep, strict="reference" in typed_keys(words))


def sweep_main(words: Sequence[str]) -> None:
    """Run the command line ``sweep``: every combination of values separated by commas."""
    main(["--multirun", *words])


def compare_main(words: Sequence[str]) -> None:
    """Run the command line ``compare``: the named methods on the same problems."""
    if not all(word.strip() for word in words):
        refuse("compare: expected methods and key=value, got an empty word; leave it out")
    names = [
        word
        for before, word in pairwise(["", *words])
        if "=" not in word.split()[0] and not word.startswith(("-", "+", "~")) and before not in VALUED
    ]
    if not names and {"-h", "--help"} & {*words}:
        print(COMPARE)
        return
    if len(names) < 2:
        methods = " ".join(names) or "none"
        refuse(f"compare: expected two methods or more, got {methods}; name them: compare cot soft_reasoning")
    entries = []
    for name, *changes in map(str.split, names):
        quoted = [f"'{change}'" for change in changes]
        entries.append(f"[{','.join([name, *quoted])}]" if changes else name)
    main([f"methods=[{','.join(entries)}]", *(word for word in words if word not in names)])
