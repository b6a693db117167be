"""The command line: soft-reasoning calibrate [group=choice] [key=value].

It tries shared points on all questions, and other embeddings and other values of sigma and of the sampling
temperature, and says which points the surrogate foresees to be right from what it may see of them. It writes
``portfolio.json`` (for ``search.prior=FILE``), ``calibration.md`` and ``calibration.png``. The tries are
stored in ``tries/``, so that the same command continues.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, ListConfig
from torch import Tensor

from soft_reasoning.checks import choice, real, whole
from soft_reasoning.commands.launch import launch
from soft_reasoning.commands.trials import SHOWN, Foresight, Trial, Try, at_points, by_sampling, tried
from soft_reasoning.configuration.build import (
    build_context,
    build_dataset,
    build_engine,
    build_method,
    built,
    check_lengths,
    made_for_of,
    model_and_prompt,
    plain,
)
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.configuration.folder import choices
from soft_reasoning.methods.soft_reasoning import SoftReasoning
from soft_reasoning.reports import plots
from soft_reasoning.reports.calibration import (
    REFERENCES,
    ROUND,
    Tried,
    choose,
    draw,
    foreseen,
    held_out,
    recommend,
    table,
    written,
)
from soft_reasoning.reports.tables import percent
from soft_reasoning.rewards.learned import Row, fit
from soft_reasoning.rewards.votes import verdicts_of
from soft_reasoning.runs.files import read_manifest, read_records, write_text
from soft_reasoning.runs.local import Local
from soft_reasoning.runs.manifest import IGNORED
from soft_reasoning.runs.records import candidates_of, problem_of
from soft_reasoning.runs.runner import solve_into
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.search.prior import Prior, question_mark
from soft_reasoning.types import UserError, generator_for

SIGMA, EMBEDDING, TEMPERATURE = "embedding.sigma", "embedding", "temperature"
PORTFOLIO, REPORT, PLOT, TRIES = "portfolio.json", "calibration.md", "calibration.png", "tries"
LIVE = 32
"""Questions tried together."""
LATER = tuple(f"calibration.{name}" for name in ("features", "portfolio", "reference", "runs"))
"""Settings that change what is made of the tries, not the tries."""


def numbers(name: str, given: Any, **bounds: Any) -> list[float]:
    """Return a list of numbers without repetition.

    Raises:
        UserError: For anything else.
    """
    if not isinstance(given, ListConfig):
        raise UserError(f"{name}: expected a list such as [1,2], got {given!r}")
    return sorted({real(name, value, **bounds) for value in given})


def _parts(name: str, given: Any, group: str, without: Sequence[str]) -> dict[str, Any]:
    """Build the given choices of a group, but for some."""
    if not isinstance(given, ListConfig):
        raise UserError(f"{name}: expected a list such as [{choices(group)[0]}], got {given!r}")
    names = [choice(name, entry, choices(group)) for entry in given]
    return {
        entry: built(compose_config([f"{group}={entry}"]), group)
        for entry in dict.fromkeys(names)
        if entry not in without
    }


def calibrate(config: DictConfig, folder: Path) -> None:
    """Calibrate into ``folder``."""
    method, settings = build_method(config), config.calibration
    if not isinstance(method, SoftReasoning):
        raise UserError(
            f"calibrate: expected a method that searches, got method={config.method.name}; leave method= out"
        )
    count = whole("calibration.points", settings.points, least=ROUND)
    kept = whole("calibration.portfolio", settings.portfolio, least=1)
    tries = whole("calibration.tries", settings.tries, least=ROUND)
    reference = choice("calibration.reference", settings.reference, REFERENCES)
    sigmas = numbers("calibration.sigmas", settings.sigmas, least=0.0) if "sigma" in config.embedding else []
    temperatures = numbers("calibration.temperatures", settings.temperatures, above=0.0)
    embeddings = _parts("calibration.embeddings", settings.embeddings, EMBEDDING, [_choice(EMBEDDING)])
    features = _parts("calibration.features", settings.features, "features", [])
    surrogate = built(compose_config(["surrogate=features"]), "surrogate")
    if kept > count:
        raise UserError(
            f"calibration.portfolio: expected at most calibration.points={count}, got {kept}; lower it"
        )
    if features and count <= SHOWN:
        raise UserError(
            f"calibration.points: expected more than {SHOWN} to compare features, got {count}; raise it, or "
            "use calibration.features=[]"
        )
    rows = [row for name in settings.runs for row in labelled_run(Path(name), config)]
    dataset = build_dataset(config)
    problems = dataset.problems()
    labelled = all(problem.gold is not None for problem in problems)
    if reference == "labels" and not labelled:
        raise UserError("calibration.reference=labels: expected a label for each question, got questions "
                        "without; use calibration.reference=answers")  # fmt: skip
    labels = labelled and reference != "answers"

    ids = [problem.id for problem in problems]
    points = _points(count, method, config, "calibration")
    own = config.embedding.get("sigma")
    todo: dict[tuple[str, Any], tuple[Try, int]] = {("own", own): (at_points(method, points), count)}
    for sigma in sigmas:
        if sigma != own:
            other = replace(method, embedding=built(config, EMBEDDING, sigma=sigma))
            todo[SIGMA, sigma] = at_points(other, points[:tries]), tries
    for name, embedding in embeddings.items():
        other = replace(method, embedding=embedding)
        todo[EMBEDDING, name] = at_points(other, _points(tries, other, config, "calibration", name)), tries
    for temperature in temperatures:
        todo[TEMPERATURE, temperature] = by_sampling(method, temperature, tries), tries
    with closing(build_engine(config)) as engine:
        context = build_context(config, engine, dataset.exemplars())
        check_lengths(problems, context)
        solver = Local(Trial([steps for steps, _ in todo.values()]), context, max_live=LIVE)
        records = solve_into(
            problems, solver, folder / TRIES, plain(config),
            fresh=config.fresh, progress=config.progress, ignore=(*IGNORED, *LATER),
        )  # fmt: skip
        tries_of = tried(records, todo, problems, context)
        worth = tries_of["own", own].worth_of(labels)
        foresight = Foresight(
            method, features, surrogate, points, dict(zip(ids, worth, strict=True)),
            {i: [c.text for c in candidates_of(records[i])[:count]] for i in ids}, {},
        )  # fmt: skip
        if features:
            for _ in drive(problems, foresight, context, max_live=LIVE):
                pass
        made_for, judged = made_for_of(config, context), model_and_prompt(config, context)
    first = tries_of["own", own]
    groups = {
        kind: {value: outcome for (name, value), outcome in tries_of.items() if name == kind}
        for kind in (SIGMA, EMBEDDING, TEMPERATURE)
    }
    if groups[SIGMA] and own is not None:
        groups[SIGMA][own] = first.first(tries)
    if groups[EMBEDDING]:
        groups[EMBEDDING] = {_choice(EMBEDDING): first.first(tries), **groups[EMBEDDING]}

    wanted = first.wanted(labels)
    portfolio = choose(first, wanted, kept)
    chosen = tuple(tuple(points[i].tolist()) for i in portfolio)
    prior = Prior(chosen, made_for, {problem.id: question_mark(problem.question) for problem in problems})
    if rows:
        asked = {problem.id: question_mark(problem.question) for problem, *_ in rows}
        rule, right = fit(rows, judged, asked)
        prior = replace(prior, final=asdict(rule), questions={**prior.questions, **asked})
        print(f"Final rule: right on {percent(right)} % of {len(rows)} problems that it was not fitted to.")
    prior.save(folder / PORTFOLIO)
    defaults = {SIGMA: own, EMBEDDING: _choice(EMBEDDING)}
    report(
        first, wanted, kept, labels, {k: v for k, v in groups.items() if v}, defaults, foresight.found, folder
    )


def labelled_run(folder: Path, config: DictConfig) -> list[Row]:
    """Return the labelled problems of a finished run, with its candidates and verdicts.

    Raises:
        UserError: If it used another model or prompt.
    """
    stored, now = read_manifest(folder)["config"], plain(config)
    for key in ("model", "prompt"):
        if stored[key] != now[key]:
            raise UserError(
                f"calibration.runs: expected runs with this {key}, got {folder} with another; run it again, "
                "or calibrate with the same"
            )
    records = [record for record in read_records(folder) if record["target"] is not None]
    return [(problem_of(record), candidates_of(record), verdicts_of(record["trace"])) for record in records]


def _choice(group: str) -> str:
    return HydraConfig.get().runtime.choices[group]


def _points(count: int, method: SoftReasoning, config: DictConfig, *stream: str) -> Tensor:
    size = (count, method.embedding.dim * method.scope)
    return torch.randn(size, dtype=torch.float64, generator=generator_for(config.seed, *stream))


def report(
    own: Tried,
    wanted: Sequence[set[str]],
    kept: int,
    labels: bool,
    groups: Mapping[str, Mapping[Any, Tried]],
    defaults: Mapping[str, Any],
    ranked: Mapping[str, Sequence[tuple[float, float]]],
    folder: Path,
) -> None:
    """Print the tables and recommendations, and write them with the plot."""
    lines, markdown = [], [f"# Calibration on {len(own.answers)} questions\n"]
    for name, settings in groups.items():
        shares = table(name, settings)
        if labels or name != TEMPERATURE:
            value, reason = recommend(settings, labels, defaults.get(name))
            advice = f"Recommended: {name}={written(value)}, because {reason}."
        else:
            advice = f"Without labels no {name} is recommended: more of it also gives more wrong answers."
        lines += [shares.text(), advice, ""]
        markdown += [f"## {name}\n", shares.markdown() + "\n", advice + "\n"]
    if ranked:
        shares, advice = foreseen(ranked, SHOWN)
        lines += [shares.text(), advice, ""]
        markdown += ["## features\n", shares.markdown() + "\n", advice + "\n"]
    chosen = "by labels" if labels else "without labels, by distinct answers"
    words = f"Portfolio: {kept} of {own.tries} points, chosen {chosen}."
    if own.correct is not None:
        first = min(kept, ROUND)
        covered = held_out(own, wanted, kept)[first - 1]
        words += (
            f" Chosen on three quarters of the questions, its first {first} points solve "
            f"{percent(covered)} % of the rest; as many random points {percent(own.coverage(first))} %."
        )
    advice = f"Use it on other questions with search.prior={folder / PORTFOLIO}"
    markdown += ["## Portfolio\n", words + "\n", advice]
    if groups and plots.available():
        draw(groups, folder / PLOT)
        markdown.insert(1, f"![]({PLOT})\n")
    write_text(folder / REPORT, "\n".join(markdown) + "\n")
    print("\n".join([*lines, words, advice]))


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line."""
    launch(calibrate, ["+calibration=default", *(sys.argv[1:] if words is None else words)])
