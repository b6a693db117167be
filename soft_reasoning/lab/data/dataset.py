"""The data set of a run: rows from a file or the hub, converted, selected and checked."""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import OptionError, choice, finite, shortened, whole
from soft_reasoning.lab.data import fields
from soft_reasoning.lab.data.custom import Columns
from soft_reasoning.lab.data.fields import Doc
from soft_reasoning.lab.data.sources import Hub, Row, located, read_file, read_hub
from soft_reasoning.prompts import Exemplar
from soft_reasoning.types import Problem, UserError, generator_for

Adapter: TypeAlias = Callable[[Doc, int], Problem]
"""A function of a row and its index that returns a problem."""

SAMPLES = ("first", "random")


class Dataset:
    """The problems and exemplars of one benchmark.

    Args:
        name: Name of the benchmark in reports and folders.
        row: Adapter ``(doc, index) -> Problem``, a callable or its dotted name.
        answer_type: One of ``answers.ANSWER_TYPES``; the adapter's problems carry it as well.
        path: A local file (``data.sources.read_file``); without it the rows come from ``hub``.
        hub: ``id``, ``split`` and, where needed, ``config`` and ``revision``.
        limit: Number of problems, or a fraction below 1 of those after ``offset``; None takes all.
        offset: Number of problems to skip, in the order of ``sample``.
        sample: ``first`` keeps the file's order; ``random`` is a permutation drawn by ``seed``, so that a
            smaller ``limit`` takes a prefix of a larger one's problems.
        seed: Seed of ``sample=random``. It is not the run's, so all runs solve the same problems.
        shots: Number of exemplars in the prompt, from the first of ``exemplars``.
        exemplars: List of mappings or a file (``read_exemplars``).
    """

    def __init__(
        self,
        *,
        name: str,
        row: Adapter | str,
        answer_type: str = "number",
        path: str | None = None,
        hub: Doc | None = None,
        limit: int | float | None = None,
        offset: int = 0,
        sample: str = "first",
        seed: int = 0,
        shots: int = 0,
        exemplars: Sequence[Doc] | str | None = None,
    ) -> None:
        choice("answer_type", answer_type, ANSWER_TYPES)
        choice("sample", sample, SAMPLES)
        for option, value in (("offset", offset), ("shots", shots), ("seed", seed)):
            whole(option, value, least=0)
        if limit is not None and not (finite(limit) and (0 < limit < 1 or limit >= 1 and limit % 1 == 0)):
            raise UserError(f"limit: expected a count of at least 1 or a fraction below 1, got {limit!r:.40}")
        self.name, self.answer_type, self.seed, self.shots = name, answer_type, seed, shots
        self._row, self._exemplars = _adapter(row), exemplars
        self._hub = Hub(**hub) if hub and hub.get("id") else None
        self._path, self._limit, self._offset, self._sample = path, limit, offset, sample

    def problems(self) -> list[Problem]:
        """Return the selected problems.

        Raises:
            UserError: If data are missing or wrong, with file and line.
        """
        problems = self._all()
        if self._sample == "random":
            drawn = torch.randperm(len(problems), generator=generator_for(self.seed, self.name, "sample"))
            problems = [problems[i] for i in drawn.tolist()]
        if self._offset >= len(problems):
            raise UserError(
                f"dataset {self.name}: expected rows beyond offset={self._offset}, got {len(problems)} in "
                "all; lower dataset.offset"
            )
        problems = problems[self._offset :]
        if self._limit is None:
            return problems
        return problems[: math.ceil(self._limit * len(problems)) if self._limit < 1 else int(self._limit)]

    def exemplars(self) -> list[Exemplar]:
        """Return the ``shots`` exemplars of the prompt.

        Raises:
            UserError: If the data set has fewer.
        """
        exemplars = read_exemplars(self._exemplars) if self.shots else []
        if len(exemplars) < self.shots:
            raise UserError(
                f"dataset.shots={self.shots}: expected as many exemplars, got {len(exemplars)}; lower it, or "
                "set dataset.exemplars=<file>"
            )
        return exemplars[: self.shots]

    def _all(self) -> list[Problem]:
        """Every problem, in the file's order."""
        rows, problems = self._rows(), dict[str, Problem]()
        adapter = self._row.over(rows) if isinstance(self._row, Columns) else self._row
        for index, row in enumerate(rows):
            with located(row.where):
                problem = adapter(row.doc, index)
                if problem.id in problems:
                    fix = "rename it, or number the rows: dataset.row.id=null"
                    raise UserError(f"expected a new id, got '{shortened(problem.id)}' again; {fix}")
            problems[problem.id] = problem
        return [*problems.values()]

    def _rows(self) -> list[Row]:
        """The rows of the file or the hub."""
        if self._path:
            return read_file(self._path, self._hub)
        if self._hub is not None:
            return read_hub(self._hub)
        raise UserError(
            f"dataset {self.name}: expected a file or a hub data set, got neither; set dataset.path=<file> "
            "or dataset.hub.id=<owner/name>"
        )


def _adapter(row: Adapter | str) -> Adapter:
    try:
        return pkgutil.resolve_name(row) if isinstance(row, str) else row
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError("row", f"expected the dotted name of a function, got '{row}'") from error


def read_exemplars(source: Sequence[Doc] | str | None) -> list[Exemplar]:
    """Read exemplars from a list of mappings (question, thought, answer) or from a file, such as YAML.

    Raises:
        UserError: If an entry is incomplete; it names the entry.
    """
    key = "dataset.exemplars"
    if isinstance(source, str):
        rows = read_file(source, key=key)
    else:
        rows = [Row(f"{key} entry {number}", doc) for number, doc in enumerate(source or (), start=1)]
    exemplars: list[Exemplar] = []
    for row in rows:
        with located(row.where):
            parts = (fields.text(row.doc, name) for name in ("question", "thought", "answer"))
            exemplars.append(Exemplar(*parts))
    return exemplars
