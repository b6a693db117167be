"""``soft-reasoning calibrate verifier=ensemble``: fit the weights of the ensemble's parts.

It runs the method on questions with reference answers, into ``tries/``, so that the same command continues.
It writes ``weights.json`` (for ``verifier.fitted=FILE``) and ``calibration.md``.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from omegaconf import DictConfig

from soft_reasoning.configuration.build import (
    build_context,
    build_dataset,
    build_engine,
    check_fits,
    check_problems,
    check_wording,
    judge_settings,
    plain,
)
from soft_reasoning.reports.judges import fitted_to, judged_questions, report_judges
from soft_reasoning.rewards.ensemble import PARTS, Ensemble
from soft_reasoning.runs.files import read_records
from soft_reasoning.runs.local import Local
from soft_reasoning.runs.runner import run
from soft_reasoning.scheduling.method import Method
from soft_reasoning.search.prior import question_fingerprint
from soft_reasoning.types import UserError

WEIGHTS, TRIES = "weights.json", "tries"


def calibrate_judges(config: DictConfig, method: Method, ensemble: Ensemble, folder: Path) -> None:
    """Fit the weights of ``ensemble``, the verifier of ``method``, and write the results into ``folder``.

    Raises:
        UserError: Without reference answers, if the ensemble's weights are fitted already, or if no part
            distinguishes right candidates from wrong ones.
    """
    if ensemble.fitted is not None:
        raise UserError("calibrate: expected an ensemble without verifier.fitted, got one; leave it out")
    dataset = build_dataset(config)
    problems = dataset.problems()
    if any(problem.gold is None for problem in problems):
        raise UserError(
            "calibrate: expected questions with reference answers, got some without; weights of "
            "verifier=ensemble are fitted to right and wrong candidates"
        )
    check_wording(config, method)
    with closing(build_engine(config)) as engine:
        context = build_context(config, engine, dataset.exemplars())
        check_fits(config, method, context)
        check_problems(problems, method, context)
        solver = Local(method, context, max_live=config.max_live)
        run(problems, solver, folder / TRIES, plain(config), fresh=config.fresh, progress=config.progress)
        made_for, grader = judge_settings(config, context), context.grader
    parts = [part for part in PARTS if part in ensemble.weights]
    ids = {problem.id for problem in problems}
    records = [record for record in read_records(folder / TRIES) if record["doc_id"] in ids]
    rows = judged_questions(records, parts, grader)
    marks = {problem.id: question_fingerprint(problem.question) for problem in problems}
    fitted = fitted_to(rows, parts, made_for, marks)
    if not any(fitted.weights.values()):
        raise UserError(
            "calibrate: expected a part that is right more often than chance, got none, so that all weights "
            "are 0; use more questions (limit=) or other parts (verifier.programs_weight= and the like)"
        )
    fitted.save(folder / WEIGHTS)
    report_judges(
        rows, parts, lambda values: ensemble.score("", values) or 0.0, fitted, folder, folder / WEIGHTS
    )
