"""What ``tune`` does: screen, search and validate, or fit, and write it."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean

from omegaconf import DictConfig

from soft_reasoning.cli.compose import plain
from soft_reasoning.configuration.context import Config
from soft_reasoning.configuration.parts import make
from soft_reasoning.engine.completions import StoreFile, replaying
from soft_reasoning.judge.programs import TASK
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.reports.statistics import paired_bootstrap, wilson
from soft_reasoning.lab.reports.tables import Table, estimate, percent
from soft_reasoning.lab.runs.files import MANIFEST, Json, lock, read_json, write_json, write_text
from soft_reasoning.lab.runs.manifest import build_manifest, check_same_run
from soft_reasoning.lab.runs.runner import LocalLauncher
from soft_reasoning.schedule.method import Context, Method
from soft_reasoning.schedule.progress import Progress
from soft_reasoning.schedule.scheduler import Run, drive
from soft_reasoning.task import Evaluation, ProbeFitting, Screened, Tuned, Tuning, TuningResult
from soft_reasoning.task.probe import Probe
from soft_reasoning.types import Problem, Result, Usage

HISTORY, POINT, REPORT, PROBE = "search.jsonl", "point.json", "tune.md", "probe.json"
WRITTEN = (HISTORY, POINT, REPORT, PROBE, "completions.sqlite*")
"""What a command writes besides its manifest."""


def learn(composed: DictConfig, words: Sequence[str], folder: Path) -> None:
    """Learn soft tokens or a probe from the data set of ``composed`` and write them into ``folder``.

    Args:
        composed: The configuration.
        words: The options that the user typed, for the manifest.
    """
    config = plain(composed)
    learner: Tuning | ProbeFitting = make(config["tune"], "tune")
    dataset = build_dataset(config)
    problems = dataset.problems()
    with closing(LocalLauncher()) as launcher:
        about = launcher.start(config, problems, dataset.exemplars())
        context = launcher.context
        fits = isinstance(learner, ProbeFitting)
        total, unit = (len(problems), "question") if fits else (learner.work, "point")
        display = Progress(total, enabled=config["progress"], unit=unit)

        def run(problems: Sequence[Problem], method: Method) -> list[Result]:
            solved: dict[str, Result] = {}
            for problem, result in drive(
                problems, method, context, max_live=config["max_live"], watch=display.work
            ):
                solved[problem.id] = result
                display.done += fits
                usage = sum(result.usage.values(), Usage())
                display.tokens += usage.generated_tokens - usage.replayed_tokens
            return [solved[problem.id] for problem in problems]

        with opened(folder, config, words, problems, about) as unlocked:
            if unlocked is not None:
                display.say(unlocked)
            display.say(about["loaded"])
            completions = StoreFile.of(
                config["cache"], config["cache_gb"], folder if unlocked is None else None
            )
            with replaying(completions, context.engines), display:
                after = partial(next_command, config, words, len(problems))
                if isinstance(learner, ProbeFitting):
                    probe = learner.fit(problems, context, run=run)
                    computes = TASK in context.prompts.wording.tasks
                    use = ["method=mixed_consistency"] if computes else ["method=best_of_n", "verifier=probe"]
                    report_probe(probe, folder, after(*use, f"probe={folder / PROBE}"))
                else:
                    learned = _learn(learner, problems, context, run, display)
                    report(learned, folder, after("method=soft_token", f"point={folder / POINT}"))


def next_command(config: Config, words: Sequence[str], count: int, *options: str) -> str:
    """Return the command that tries what was learnt on the questions after the first ``count``."""
    own = ("tune", "limit", "fresh", "hydra.run.dir", "dataset.offset")
    kept = [word for word in words if word.partition("=")[0] not in own and not word.startswith("tune.")]
    offset = f"dataset.offset={config['dataset']['offset'] + count}"
    return shlex.join(["soft-reasoning", "run", *options, *kept, offset])


def _learn(
    tuning: Tuning, problems: Sequence[Problem], context: Context, run: Run, display: Progress
) -> TuningResult:
    """Learn soft tokens, with every space and every best point on the ``display``."""
    screened: list[Screened] = []
    searched: list[Evaluation] = []

    def on_screened(space: Screened) -> None:
        display.done += tuning.points
        screened.append(space)
        display.say(f"screened {space.name}: deviation beyond chance {deviation(space)}")
        if len(screened) == len(tuning.spaces):
            print(f"\n{screening_table(screened).text()}\n", flush=True)

    def on_evaluation(evaluation: Evaluation) -> None:
        display.done += 1
        searched.append(evaluation)
        best = max(searched, key=lambda e: e.mean)
        if best is evaluation:
            share = estimate(best.mean, *wilson(best.mean, len(best.rewards)))
            display.say(f"point {len(searched)}: best so far {share} %")
        display.show()

    return tuning.learn(problems, context, run=run, on_screened=on_screened, on_evaluation=on_evaluation)


@contextmanager
def opened(
    folder: Path, config: Config, words: Sequence[str], problems: Sequence[Problem], about: Json
) -> Generator[str | None]:
    """Keep ``folder`` locked, once it is new or holds the same search; yield why it cannot be locked.

    Raises:
        UserError: If another process uses it, or if it holds another search, of other questions or another
            model.
    """
    asked = json.dumps([(p.id, p.question, p.gold) for p in problems])
    settings = {**config, "questions": hashlib.sha256(asked.encode()).hexdigest()[:16]}
    # ``anyway`` decides only whether there is a search.
    settings["tune"] = {name: value for name, value in config["tune"].items() if name != "anyway"}
    command = shlex.join(["soft-reasoning", "tune", *words])
    manifest = build_manifest(settings, {"command": command, **about})
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        unlocked = lock(descriptor, folder)
        if (folder / MANIFEST).exists() and not config["fresh"]:
            check_same_run(read_json(folder / MANIFEST), manifest, folder)
        else:
            for path in [path for pattern in WRITTEN for path in folder.glob(pattern)]:
                path.unlink()
            write_json(folder / MANIFEST, manifest)
        yield unlocked
    finally:
        os.close(descriptor)


def report_probe(probe: Probe, folder: Path, after: str) -> None:
    """Print how well ``probe`` tells correct solutions from wrong ones, and write it.

    Args:
        after: The command that uses it.
    """
    probe.save(folder / PROBE)
    measured = probe.measured
    lines = [
        f"Fitted on {measured['texts']} solutions of {len(probe.questions)} questions, "
        f"{percent(measured['right'])} % of them correct.",
        f"On questions that it did not see its AUC is {measured['auc']:.2f} (votes alone "
        f"{measured['auc_votes']:.2f}).",
        f"To use it on the next questions: {after}"
        if measured["auc"] > measured["auc_votes"]
        else "It tells them apart no better than the votes alone, so it does not help.",
    ]
    _finish(folder, ["# A probe of hidden states"], lines)


def report(learned: TuningResult, folder: Path, after: str) -> None:
    """Print what was learnt, and write it: the point, the points of the search and the report.

    Args:
        after: The command that uses the point.
    """
    parts = ["# Soft tokens of a task", screening_table(learned.screened).markdown()]
    if learned.tuned is None:
        for name in (POINT, HISTORY):  # of a search with tune.anyway=true
            (folder / name).unlink(missing_ok=True)
        shown = max(space.spread.high for space in learned.screened)
        lines = [
            "The screening shows nothing to find: in no space do the points differ by more than chance and "
            f"reach more than greedy decoding. The deviation may still be up to {100 * shown:.1f} points. "
            "More questions (limit=) make the intervals shorter, and tune.anyway=true searches all the same."
        ]
    else:
        learned.tuned.point.save(folder / POINT)
        lines = [json.dumps(asdict(evaluation)) + "\n" for evaluation in learned.tuned.evaluations]
        write_text(folder / HISTORY, "".join(lines))
        lines = [
            f"Searched {learned.space}: {len(learned.tuned.evaluations)} points.",
            describe_gain(learned.tuned),
            f"To use the point on the next questions: {after}",
        ]
    _finish(folder, parts, lines)


def _finish(folder: Path, parts: Sequence[str], lines: Sequence[str]) -> None:
    """Write the report, its ``parts`` and ``lines``, and print the lines."""
    write_text(folder / REPORT, "\n\n".join([*parts, *lines]) + "\n")
    print("\n".join([*lines, str(folder / REPORT)]))


def describe_gain(tuned: Tuned) -> str:
    """Return the best point against greedy decoding on the questions that the search did not see."""
    gain = paired_bootstrap(tuned.validation.rewards, tuned.greedy.rewards)
    line = (
        f"On {len(tuned.greedy.rewards)} questions that the search did not see: greedy decoding "
        f"{percent(tuned.greedy.mean)} %, the best of the finalists {percent(tuned.validation.mean)} %, "
        f"{100 * gain.difference:+.1f} points ({100 * gain.low:.1f} to {100 * gain.high:.1f}; their best "
        "result is favoured by chance: measure it on other questions)."
    )
    return line if gain.low > 0 else f"{line} These questions show no gain."


def screening_table(screened: Sequence[Screened]) -> Table:
    """Return what there is to find in each space."""
    columns = {
        "greedy %": lambda space: percent(space.greedy),
        "points %": lambda space: percent(fmean(space.means)),
        "lowest": lambda space: percent(min(space.means)),
        "highest": lambda space: percent(max(space.means)),
        "deviation beyond chance": deviation,
        "reach over greedy": lambda space: (
            f"{100 * space.reach:+.1f}" + ("" if space.promising else " (not shown)")
        ),
    }
    return Table.from_rows("space", [(space.name, space) for space in screened], columns)


def deviation(space: Screened) -> str:
    """Return the standard deviation between points beyond chance in points, with its interval."""
    return estimate(space.spread.deviation, space.spread.low, space.spread.high)
