"""The command line: soft-reasoning calibrate [group=choice] [key=value].

It tries the same points on all questions, and other embeddings, values of sigma and sampling temperatures.
It writes ``portfolio.json`` (for ``search.prior=FILE``) and ``calibration.md``. The tries are
stored in ``tries/``, so that the same command continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, ListConfig
from torch import Tensor

from soft_reasoning.checks import choice, real, whole
from soft_reasoning.configuration.build import (
    build_context,
    build_dataset,
    build_engine,
    build_method,
    check_problems,
    plain,
    space_settings,
)
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.configuration.conf_dir import choices
from soft_reasoning.configuration.parts import built
from soft_reasoning.methods.soft_reasoning import SoftReasoning
from soft_reasoning.reports.calibration import DECODING, ROUND, TEMPERATURE, Tries, greedy_cover, report
from soft_reasoning.runs.files import read_records
from soft_reasoning.runs.local import Local
from soft_reasoning.runs.runner import run
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.scheduling.solutions import read_candidate, solution_request
from soft_reasoning.search.prior import Prior, question_fingerprint
from soft_reasoning.types import Candidate, Generate, Problem, Result, Sampling, UserError, generator_for

SIGMA, EMBEDDING = "embedding.sigma", "embedding"
REFERENCES = ("auto", "answers")
PORTFOLIO, TRIES = "portfolio.json", "tries"
LIVE = 32
"""Number of questions tried together."""
Try: TypeAlias = Callable[[Problem, Context], Steps[list[Candidate]]]


@dataclass(frozen=True)
class Trial:
    """Tries every setting on a question; a candidate's round is the number of its setting.

    The answer is the candidates' vote.
    """

    settings: Sequence[Try]
    name: str = "calibration"

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        candidates: list[Candidate] = []
        for number, setting in enumerate(self.settings):
            tried = yield from setting(problem, context)
            candidates += [replace(candidate, round=number) for candidate in tried]
        answer = context.grader.vote([candidate.answer for candidate in candidates], problem.answer_type)
        return Result(answer, tuple(candidates))


def at_points(method: SoftReasoning, points: Tensor) -> Try:
    """Try ``points`` (n, d) in the method's search space."""

    def steps(problem: Problem, context: Context) -> Steps[list[Candidate]]:
        space = yield from method.open(problem, context)
        return (yield from space.complete(points))

    return steps


def by_sampling(method: SoftReasoning, temperature: float, count: int) -> Try:
    """Sample ``count`` completions without a soft token."""

    def steps(problem: Problem, context: Context) -> Steps[list[Candidate]]:
        sampling = Sampling(temperature=temperature)
        requests = [
            solution_request(problem, context, method.max_new_tokens, index=i, sampling=sampling)
            for i in range(count)
        ]
        completions = yield Generate(requests)
        return [read_candidate(completion, problem, context) for completion in completions]

    return steps


def calibrate(config: DictConfig, folder: Path) -> None:
    """Calibrate, and write the results into ``folder``."""
    method, settings = build_method(config), config.calibration
    if not isinstance(method, SoftReasoning):
        raise UserError(
            f"calibrate: expected a method that searches, got method={config.method.name}; leave method= out"
        )
    count = whole("calibration.points", settings.points, least=ROUND)
    size = whole("calibration.portfolio", settings.portfolio, least=1, most=count)
    tries = whole("calibration.tries", settings.tries, least=ROUND)
    reference = choice("calibration.reference", settings.reference, REFERENCES)
    points = _points(count, method, config)
    alternatives = other_settings(config, method, points[:tries])
    dataset = build_dataset(config)
    problems = dataset.problems()
    with closing(build_engine(config)) as engine:
        context = build_context(config, engine, dataset.exemplars())
        check_problems(problems, method, context)
        solver = Local(Trial([at_points(method, points), *alternatives.values()]), context, max_live=LIVE)
        run(
            problems,
            solver,
            folder / TRIES,
            plain(config),
            fresh=config.fresh,
            progress=config.progress,
        )
        made_for = space_settings(config, context)
    records = {record["doc_id"]: record for record in read_records(folder / TRIES)}
    rows = [(problem, records[problem.id]["candidates"]) for problem in problems]
    labels = reference == "auto" and all(problem.gold is not None for problem in problems)
    configured, *outcomes = (
        Tries.of(rows, number, context.grader, labels) for number in range(1 + len(alternatives))
    )

    portfolio = tuple(tuple(points[i].tolist()) for i in greedy_cover(configured.useful, size))
    marks = {problem.id: question_fingerprint(problem.question) for problem in problems}
    Prior(portfolio, made_for, marks).save(folder / PORTFOLIO)
    groups: dict[str, dict[str, Tries]] = {}
    for (option, value), outcome in zip(alternatives, outcomes, strict=True):
        default = {} if option == TEMPERATURE else {_default(option, config): configured.first(tries)}
        groups.setdefault(option, default)[value] = outcome
    if "sigma" not in config.embedding:
        name = _default(EMBEDDING, config)
        print(f"embedding={name} has no sigma; soft-reasoning calibrate embedding=gaussian tries several\n")
    report(configured, size, groups, folder, f"search.prior={folder / PORTFOLIO}")


def other_settings(config: DictConfig, method: SoftReasoning, points: Tensor) -> dict[tuple[str, str], Try]:
    """Return the tries of all settings but the configured one, by option and value.

    Args:
        config: The configuration.
        method: The configured method.
        points: (n, d), which are tried with other sigmas.
    """
    settings: dict[tuple[str, str], Try] = {}
    for value in _numbers("sigmas", config, least=0.0) if "sigma" in config.embedding else ():
        if value != config.embedding.sigma:
            changed = replace(method, embedding=built(config, EMBEDDING, sigma=value))
            settings[SIGMA, f"{value:g}"] = at_points(changed, points)
    for name in _listed("embeddings", config):
        choice("calibration.embeddings", name, choices(EMBEDDING))
        if name != _default(EMBEDDING, config):
            changed = replace(method, embedding=built(compose_config([f"{EMBEDDING}={name}"]), EMBEDDING))
            settings[EMBEDDING, name] = at_points(changed, _points(len(points), changed, config, name))
    for value in _numbers("temperatures", config, above=0.0):
        if value != method.decoding.temperature:
            sampling = built(compose_config(["decoding=sampled"]), "decoding", temperature=value)
            settings[DECODING, f"{value:g}"] = at_points(replace(method, decoding=sampling), points)
    for value in _numbers("temperatures", config, above=0.0):
        settings[TEMPERATURE, f"{value:g}"] = by_sampling(method, value, len(points))
    return settings


def _listed(name: str, config: DictConfig) -> list[Any]:
    values = config.calibration[name]
    if not isinstance(values, ListConfig):
        raise UserError(f"calibration.{name}: expected a list in brackets, got {values!r}")
    return list(values)


def _numbers(name: str, config: DictConfig, **bounds: Any) -> list[float]:
    return sorted({real(f"calibration.{name}", value, **bounds) for value in _listed(name, config)})


def _default(option: str, config: DictConfig) -> str:
    """The configured value of ``embedding``, ``embedding.sigma`` or ``decoding.temperature``."""
    if option == EMBEDDING:
        return HydraConfig.get().runtime.choices[EMBEDDING]
    if option == DECODING:
        return f"{config.decoding.get('temperature', 0.0):g}"
    sigma = config.embedding.sigma
    return sigma if isinstance(sigma, str) else f"{sigma:g}"


def _points(count: int, method: SoftReasoning, config: DictConfig, *stream: str) -> Tensor:
    size = (count, method.embedding.dim * method.scope)
    generator = generator_for(config.seed, "calibration", *stream)
    return torch.randn(size, dtype=torch.float64, generator=generator)
