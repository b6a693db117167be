"""The solver of a run whose folder holds every answer already: it loads no model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.configuration.context import build_grader
from soft_reasoning.engine.paths import weights_fingerprint
from soft_reasoning.lab.runs.files import MANIFEST, SAMPLES, read_json
from soft_reasoning.lab.runs.records import read_records
from soft_reasoning.types import Problem, Result

ENGINE = ("model", "device", "batch_invariant", "flops", "layout", "independent")
"""The manifest's entries that a solver states."""


class Answered:
    """A ``runs.runner.Solver`` without problems to solve, described by the manifest in ``folder``.

    The weights are described anew, so :class:`~soft_reasoning.lab.runs.store.Store` refuses others.
    """

    def __init__(self, config: Mapping[str, Any], folder: Path) -> None:
        manifest = read_json(folder / MANIFEST)
        self.grader: AnswerGrader = build_grader(config)
        self.about: Mapping[str, Any] = {name: manifest[name] for name in ENGINE if name in manifest}
        model = self.about.get("model") or {}
        if model.get("weights"):
            model["weights"] = weights_fingerprint(model["path"], None)

    def solve(self, *_: Any, **__: Any) -> Iterator[tuple[Problem, Result]]:
        """As ``Solver.solve``, of no problems."""
        return iter(())

    def peaks(self) -> Mapping[str, int]:
        return {}


def answered(config: Mapping[str, Any], folder: Path, problems: Iterable[Problem]) -> Answered | None:
    """Return the solver of a run of ``config`` if ``folder`` holds a record of each problem, else None.

    Raises:
        UserError: If ``folder`` holds damaged files.
    """
    if config["fresh"] or not (folder / SAMPLES).is_file():
        return None
    stored = {record.problem.id for record in read_records(folder)}
    return Answered(config, folder) if stored >= {problem.id for problem in problems} else None
