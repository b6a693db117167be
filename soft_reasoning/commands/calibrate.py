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
from typing import Any, TypeAlias

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
from soft_reasoning.reports.tables import Table, percent
from soft_reasoning.rewards.estimates import Judged
from soft_reasoning.rewards.learned import Row, fit
from soft_reasoning.rewards.votes import verdicts_of
from soft_reasoning.runs.files import read_manifest, read_records, write_text
from soft_reasoning.runs.local import Local
from soft_reasoning.runs.manifest import IGNORED
from soft_reasoning.runs.records import candidates_of, problem_of
from soft_reasoning.runs.runner import run
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.search.prior import Prior, question_mark
from soft_reasoning.types import Problem, UserError, generator_for

SIGMA, EMBEDDING, TEMPERATURE = "embedding.sigma", "embedding", "temperature"
PORTFOLIO, REPORT, PLOT, TRIES = "portfolio.json", "calibration.md", "calibration.png", "tries"
OWN = ("own", None)
"""The configured setting; the others are named by kind and value."""
LIVE = 32
"""Questions tried together."""
LATER = tuple(f"calibration.{name}" for name in ("features", "portfolio", "reference", "runs"))
"""Settings that change what is made of the tries, not the tries."""


Key: TypeAlias = tuple[str, Any]


def numbers(name: str, given: Any, **bounds: Any) -> list[float]:
    """Return a list of numbers without repetition.

    Raises:
        UserError: For anything else.
    """
    if not isinstance(given, ListConfig):
        raise UserError(f"{name}: expected a list such as [1,2], got {given!r}")
    return sorted({real(name, value, **bounds) for value in given})


def _parts(name: str, group: str, settings: DictConfig) -> dict[str, Any]:
    """Build the choices of a group that ``calibration.name`` lists."""
    key, given = f"calibration.{name}", settings[name]
    if not isinstance(given, ListConfig):
        raise UserError(f"{key}: expected a list such as [{choices(group)[0]}], got {given!r}")
    names = dict.fromkeys(choice(key, entry, choices(group)) for entry in given)
    return {entry: built(compose_config([f"{group}={entry}"]), group) for entry in names}


def calibrate(config: DictConfig, folder: Path) -> None:
    """Calibrate into ``folder``."""
    method, settings = build_method(config), config.calibration
    if not isinstance(method, SoftReasoning):
        raise UserError(
            f"calibrate: expected a method that searches, got method={config.method.name}; leave method= out"
        )
    count, kept, few = counts_of(settings)
    reference = choice("calibration.reference", settings.reference, REFERENCES)
    features = _parts("features", "features", settings)
    if features and count <= SHOWN:
        raise UserError(
            f"calibration.points: expected more than {SHOWN} to compare features, got {count}; raise it, or "
            "use calibration.features=[]"
        )
    points = _points(count, method, config, "calibration")
    todo = todo_of(config, method, points, few)
    rows = [row for name in settings.runs for row in labelled_run(Path(name), config)]
    dataset = build_dataset(config)
    problems = dataset.problems()
    labelled = all(problem.gold is not None for problem in problems)
    if reference == "labels" and not labelled:
        raise UserError("calibration.reference=labels: expected a label for each question, got questions "
                        "without; use calibration.reference=answers")  # fmt: skip
    labels = labelled and reference != "answers"
    with closing(build_engine(config)) as engine:
        context = build_context(config, engine, dataset.exemplars())
        check_lengths(problems, context)
        solver = Local(Trial([steps for steps, _ in todo.values()]), context, max_live=LIVE)
        run(
            problems, solver, folder / TRIES, plain(config),
            fresh=config.fresh, progress=config.progress, ignore=(*IGNORED, *LATER),
        )  # fmt: skip
        records = {record["doc_id"]: record for record in read_records(folder / TRIES)}
        found = tried(records, todo, problems, context)
        own = found.pop(OWN)
        shares: dict[str, list[tuple[float, float]]] = {}
        if features:
            worth = {p.id: row for p, row in zip(problems, own.worth_of(labels), strict=True)}
            texts = {p.id: [c.text for c in candidates_of(records[p.id])[:count]] for p in problems}
            surrogate = built(compose_config(["surrogate=features"]), "surrogate")
            foresight = Foresight(method, features, surrogate, points, worth, texts, shares)
            for _ in drive(problems, foresight, context, max_live=LIVE):
                pass
        made_for, judged = made_for_of(config, context), model_and_prompt(config, context)
    wanted = own.wanted(labels)
    chosen = tuple(tuple(points[i].tolist()) for i in choose(own, wanted, kept))
    prior = Prior(chosen, made_for, _marks(problems))
    if rows:
        asked = _marks([problem for problem, _ in rows])
        rule, right = fit(rows, judged, asked)
        prior = replace(prior, final=asdict(rule), questions={**prior.questions, **asked})
        print(f"Final rule: right on {percent(right)} % of {len(rows)} problems that it was not fitted to.")
    prior.save(folder / PORTFOLIO)
    defaults = {SIGMA: config.embedding.get("sigma"), EMBEDDING: _choice(EMBEDDING)}
    groups: dict[str, dict[Any, Tried]] = {}
    for (kind, value), outcome in found.items():
        default = defaults.get(kind)
        groups.setdefault(kind, {} if default is None else {default: own.first(few)})[value] = outcome
    report(own, wanted, kept, labels, groups, defaults, shares, folder)


def counts_of(settings: DictConfig) -> tuple[int, int, int]:
    """Return the numbers of points, of those that are kept, and of tries of every other setting.

    Raises:
        UserError: For one out of its range.
    """
    count = whole("calibration.points", settings.points, least=ROUND)
    kept = whole("calibration.portfolio", settings.portfolio, least=1)
    if kept > count:
        raise UserError(
            f"calibration.portfolio: expected at most calibration.points={count}, got {kept}; lower it"
        )
    return count, kept, whole("calibration.tries", settings.tries, least=ROUND)


def todo_of(
    config: DictConfig, method: SoftReasoning, points: Tensor, few: int
) -> dict[Key, tuple[Try, int]]:
    """Return how each setting is tried, and how often: the configured one at all ``points``."""
    settings, sigma = config.calibration, config.embedding.get("sigma")
    todo: dict[Key, tuple[Try, int]] = {OWN: (at_points(method, points), len(points))}
    sigmas = numbers("calibration.sigmas", settings.sigmas, least=0.0)
    for value in sigmas if "sigma" in config.embedding else ():
        if value != sigma:
            other = replace(method, embedding=built(config, EMBEDDING, sigma=value))
            todo[SIGMA, value] = at_points(other, points[:few]), few
    for name, embedding in _parts("embeddings", EMBEDDING, settings).items():
        if name != _choice(EMBEDDING):
            other = replace(method, embedding=embedding)
            todo[EMBEDDING, name] = at_points(other, _points(few, other, config, "calibration", name)), few
    for value in numbers("calibration.temperatures", settings.temperatures, above=0.0):
        todo[TEMPERATURE, value] = by_sampling(method, value, few), few
    return todo


def _marks(problems: Sequence[Problem]) -> dict[str, str]:
    return {problem.id: question_mark(problem.question) for problem in problems}


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
    grader, rows = built(config, "grader"), list[Row]()
    for record in read_records(folder):
        if record["target"] is not None:
            problem, verdicts = problem_of(record), verdicts_of(record["trace"])
            rows.append((problem, Judged(candidates_of(record), verdicts, grader, problem.answer_type)))
    return rows


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
    parts: dict[str, tuple[Table, str]] = {}
    for name, settings in groups.items():
        if labels or name != TEMPERATURE:
            value, reason = recommend(settings, labels, defaults.get(name))
            advice = f"Recommended: {name}={written(value)}, because {reason}."
        else:
            advice = f"Without labels no {name} is recommended: more of it also gives more wrong answers."
        parts[name] = table(name, settings), advice
    if ranked:
        parts["features"] = foreseen(ranked, SHOWN)
    chosen = "by labels" if labels else "without labels, by distinct answers"
    words = f"Portfolio: {kept} of {own.tries} points, chosen {chosen}."
    if own.correct is not None:
        first = min(kept, ROUND)
        covered = held_out(own, wanted, kept)[first - 1]
        words += (
            f" Chosen on three quarters of the questions, its first {first} points solve "
            f"{percent(covered)} % of the rest; as many random points {percent(own.coverage(first))} %."
        )
    use = f"Use it on other questions with search.prior={folder / PORTFOLIO}"
    markdown = [f"# Calibration on {len(own.answers)} questions\n"]
    if groups and plots.available():
        draw(groups, folder / PLOT)
        markdown.append(f"![]({PLOT})\n")
    for name, (shares, advice) in parts.items():
        print(f"{shares.text()}\n{advice}\n")
        markdown += [f"## {name}\n", shares.markdown() + "\n", advice + "\n"]
    print(f"{words}\n{use}")
    write_text(folder / REPORT, "\n".join([*markdown, "## Portfolio\n", words + "\n", use]) + "\n")


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line."""
    launch(calibrate, ["+calibration=default", *(sys.argv[1:] if words is None else words)])
