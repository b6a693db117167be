"""A benchmark as a run uses it: rows from a file or the hub, converted, selected and checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from hydra.utils import get_method

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import choice, finite, ids, whole
from soft_reasoning.data.exemplars import Exemplar, from_config
from soft_reasoning.data.sources import Hub, Row, read_file, read_hub
from soft_reasoning.types import Problem, UserError, generator_for

SAMPLES = ("first", "random")
EXEMPLAR_SOURCES = ("file", "train")


class Dataset:
    """The problems and exemplars of one benchmark.

    Args:
        name: of the benchmark, in reports and folder names.
        row: adapter ``(doc, index) -> Problem``, a callable or its dotted name.
        answer_type: one of ``answers.ANSWER_TYPES``; the adapter's problems carry it as well.
        path: a local file (``data.sources.read_file``); without it the rows come from ``hub``.
        hub: ``id``, ``split`` and, where needed, ``config`` and ``revision``.
        where: field -> value (or list of values) that a row must have; compared as text.
        limit: how many problems: a count, or a fraction below 1 of those left after ``offset``; None is all.
        offset: problems skipped, in the order that ``sample`` gives.
        sample: ``first`` keeps the file's order; ``random`` is a permutation drawn by ``seed``, so that a
            smaller ``limit`` takes a prefix of a larger one's problems.
        seed: of drawn problems and exemplars. It is not the run's, so runs of any seed solve the same.
        shots: exemplars in the prompt, the first ones of their source.
        exemplars: list of mappings or a YAML file (``data.exemplars.from_config``).
        exemplar_source: ``file`` (``exemplars``) or ``train`` (seeded draw from the rows of ``train``).
        train: ``row`` (adapter ``doc -> Exemplar``) with ``path``, a ``hub`` of its own or a ``split`` of
            the problems', and ``where``.
    """

    def __init__(
        self,
        *,
        name: str,
        row: Callable[[Mapping[str, Any], int], Problem] | str,
        answer_type: str = "number",
        path: str | None = None,
        hub: Mapping[str, Any] | None = None,
        where: Mapping[str, Any] | None = None,
        limit: int | float | None = None,
        offset: int = 0,
        sample: str = "first",
        seed: int = 0,
        shots: int = 0,
        exemplars: Sequence[Mapping[str, Any]] | str | None = None,
        exemplar_source: str = "file",
        train: Mapping[str, Any] | None = None,
    ) -> None:
        choice("answer_type", answer_type, ANSWER_TYPES)
        choice("sample", sample, SAMPLES)
        choice("exemplar_source", exemplar_source, EXEMPLAR_SOURCES)
        whole("offset", offset, least=0)
        whole("shots", shots, least=0)
        whole("seed", seed, least=0)
        self.name = name
        self.seed = seed
        self.answer_type = answer_type
        self.shots = shots
        self._row = _adapter(row, "dataset.row")
        self._hub = Hub(**hub) if hub and hub.get("id") else None
        self._path, self._where = path, dict(where or {})
        self._limit, self._offset, self._sample = _checked_limit(limit), offset, sample
        self._exemplars, self._exemplar_source, self._train = exemplars, exemplar_source, dict(train or {})

    def problems(self) -> list[Problem]:
        """Return the selected problems.

        Raises:
            UserError: If data are missing or wrong, with file and line.
        """
        rows = self._rows(self._path, self._hub, self._where)
        problems = [_located(row, self._row, row.doc, row.index) for row in rows]
        ids((row.where, problem.id) for row, problem in zip(rows, problems, strict=True))
        if self._sample == "random":
            order = torch.randperm(len(problems), generator=generator_for(self.seed, self.name, "sample"))
            problems = [problems[i] for i in order.tolist()]
        if self._offset >= len(problems):
            raise UserError(
                f"dataset {self.name}: expected rows beyond offset={self._offset}, got {len(problems)} in "
                "all; lower dataset.offset or fix dataset.where"
            )
        problems = problems[self._offset :]
        if self._limit is None:
            return problems
        return problems[: math.ceil(self._limit * len(problems)) if self._limit < 1 else int(self._limit)]

    def exemplars(self) -> list[Exemplar]:
        """Return the ``shots`` exemplars of the prompt.

        Raises:
            UserError: If their source has fewer.
        """
        if self.shots == 0:
            return []
        if self._exemplar_source == "file":
            exemplars = from_config(self._exemplars)
        else:
            exemplars = self.training(self.shots)
        if len(exemplars) < self.shots:
            raise UserError(
                f"dataset.shots={self.shots}: expected as many exemplars, got {len(exemplars)}; lower it, or "
                "set dataset.exemplars=<YAML file> or dataset.exemplar_source=train"
            )
        return exemplars[: self.shots]

    def training(self, count: int | None = None) -> list[Exemplar]:
        """Return the first ``count`` training rows (None: all) in a seeded order.

        Rows whose question is one of the problems are left out.

        Raises:
            UserError: If the benchmark has no training rows.
        """
        train = self._train
        if not train.get("row"):
            raise UserError(
                f"dataset {self.name} has no training rows; take another, or dataset=custom with "
                "dataset.train.path=<file>"
            )
        adapter, hub = _adapter(train["row"], "dataset.train.row"), None
        if train.get("hub"):
            hub = Hub(**train["hub"])
        elif self._hub and train.get("split"):
            hub = Hub(self._hub.id, train["split"], self._hub.config, self._hub.revision)
        rows = self._rows(train.get("path"), hub, train.get("where") or {}, "dataset.train.path")
        problems = self._rows(self._path, self._hub, self._where)
        asked = {_located(row, self._row, row.doc, row.index).question for row in problems}
        order = torch.randperm(len(rows), generator=generator_for(self.seed, self.name, "exemplars")).tolist()
        exemplars: list[Exemplar] = []
        for position in order:
            if len(exemplars) == count:
                break
            exemplar = _located(rows[position], adapter, rows[position].doc)
            if exemplar.question not in asked:
                exemplars.append(exemplar)
        return exemplars

    def _rows(
        self, path: str | None, hub: Hub | None, where: Mapping[str, Any], key: str = "dataset.path"
    ) -> list[Row]:
        """The rows of a file or the hub that hold the values of ``where``."""
        if path:
            rows = read_file(path, hub, key)
        elif hub is not None:
            rows = read_hub(hub, key)
        else:
            raise UserError(
                f"dataset {self.name}: expected a file or a hub data set, got neither; set {key}=<file> or "
                "dataset.hub.id=<owner/name>"
            )
        return [row for row in rows if _holds(row.doc, where)]


def _located(row: Row, adapter: Callable, *arguments: Any) -> Any:
    """An adapter's value, its errors headed by the row's place."""
    try:
        return adapter(*arguments)
    except UserError as error:
        raise UserError(f"{row.where}: {error}") from error


def _adapter(row: Callable | str, key: str) -> Callable:
    if not isinstance(row, str):
        return row
    try:
        return get_method(row)
    except (ImportError, ValueError) as error:
        raise UserError(f"{key}: expected the dotted name of a function, got '{row}'") from error


def _holds(doc: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    for field, wanted in where.items():
        values = wanted if isinstance(wanted, Sequence) and not isinstance(wanted, str) else [wanted]
        if str(doc.get(field)) not in map(str, values):
            return False
    return True


def _checked_limit(limit: int | float | None) -> int | float | None:
    if limit is None:
        return None
    if not (finite(limit) and (0 < limit < 1 or limit >= 1 and limit == int(limit))):
        raise UserError(f"limit: expected a count of at least 1 or a fraction below 1, got {limit!r:.40}")
    return limit
