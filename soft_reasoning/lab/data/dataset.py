"""The data set of a run: rows from a file or the hub, converted, selected and checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeAlias, TypeVar

import yaml

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import OptionError, choice, finite, local_path, whole
from soft_reasoning.configuration.parts import make
from soft_reasoning.lab.data import fields
from soft_reasoning.lab.data.custom import Columns
from soft_reasoning.lab.data.sources import Hub, Row, located, read_file, read_hub
from soft_reasoning.prompts import Exemplar
from soft_reasoning.types import Problem, UserError, generator_for, shortened

Adapter: TypeAlias = Callable[..., Any]
"""A function of a row and its index that returns a problem, or an exemplar."""

T = TypeVar("T")

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
        exemplars: List of mappings or a YAML file (``read_exemplars``).
        train: ``row`` (adapter ``doc -> Exemplar``) with ``path``, another ``hub``, or a ``split`` of the
            problems' hub.
    """

    def __init__(
        self,
        *,
        name: str,
        row: Callable[[Mapping[str, Any], int], Problem] | str,
        answer_type: str = "number",
        path: str | None = None,
        hub: Mapping[str, Any] | None = None,
        limit: int | float | None = None,
        offset: int = 0,
        sample: str = "first",
        seed: int = 0,
        shots: int = 0,
        exemplars: Sequence[Mapping[str, Any]] | str | None = None,
        train: Mapping[str, Any] | None = None,
    ) -> None:
        _check_path("path", path)
        _check_path("train.path", (train or {}).get("path"))
        choice("answer_type", answer_type, ANSWER_TYPES)
        choice("sample", sample, SAMPLES)
        for option, value in (("offset", offset), ("shots", shots), ("seed", seed)):
            whole(option, value, least=0)
        self.name, self.answer_type, self.seed, self.shots = name, answer_type, seed, shots
        self._row = _adapter("row", row)
        self._hub = Hub(**hub) if hub and hub.get("id") else None
        self._path = path
        self._limit, self._offset, self._sample = _checked_limit(limit), offset, sample
        self._exemplars, self._train = exemplars, dict(train or {})

    def problems(self) -> list[Problem]:
        """Return the selected problems.

        Raises:
            UserError: If data are missing or wrong, with file and line.
        """
        problems = self._all()
        if self._sample == "random":
            problems = _shuffled(problems, self.seed, self.name, "sample")
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
                "set dataset.exemplars=<YAML file>"
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
                f"dataset {self.name} has no training rows; use another, or dataset=custom with "
                "dataset.train.path=<file>"
            )
        adapter, hub = _adapter("train.row", train["row"]), None
        if train.get("hub"):
            hub = Hub(**train["hub"])
        elif self._hub and train.get("split"):
            hub = Hub(self._hub.id, train["split"], self._hub.config, self._hub.revision)
        rows = self._rows(train.get("path"), hub, "dataset.train.path")
        adapter = _fitted(adapter, rows)
        questions = {problem.question for problem in self._all()}
        exemplars: list[Exemplar] = []
        for row in _shuffled(rows, self.seed, self.name, "exemplars"):
            if len(exemplars) == count:
                break
            with located(row):
                exemplar: Exemplar = adapter(row.doc)
            if exemplar.question not in questions:
                exemplars.append(exemplar)
        return exemplars

    def _all(self) -> list[Problem]:
        """Every problem, in the file's order."""
        problems: dict[str, Problem] = {}
        rows = self._rows(self._path, self._hub, "dataset.path")
        adapter = _fitted(self._row, rows)
        for row in rows:
            with located(row):
                problem = adapter(row.doc, row.index)
                if problem.id in problems:
                    raise UserError(f"expected a new id, got '{shortened(problem.id)}' again")
            problems[problem.id] = problem
        return [*problems.values()]

    def _rows(self, path: str | None, hub: Hub | None, key: str) -> list[Row]:
        """The rows of a file or the hub."""
        if path:
            return read_file(path, hub, key)
        if hub is not None:
            return read_hub(hub, key)
        raise UserError(
            f"dataset {self.name}: expected a file or a hub data set, got neither; set {key}=<file> or "
            "dataset.hub.id=<owner/name>"
        )


def _shuffled(items: Sequence[T], seed: int, *stage: object) -> list[T]:
    """``items`` in an order that :func:`~soft_reasoning.types.generator_for` draws."""
    import torch  # takes seconds, which wrong options do without

    return [items[i] for i in torch.randperm(len(items), generator=generator_for(seed, *stage)).tolist()]


def _adapter(option: str, row: Adapter | str) -> Adapter:
    try:
        return resolve_name(row) if isinstance(row, str) else row
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(option, f"expected the dotted name of a function, got '{row}'") from error


def _check_path(option: str, path: object) -> None:
    if path is not None and not isinstance(path, str | Path):
        raise OptionError(option, f"expected the path of a file, got {path!r:.40}")


def _checked_limit(limit: int | float | None) -> int | float | None:
    if limit is None or finite(limit) and (0 < limit < 1 or limit >= 1 and limit == int(limit)):
        return limit
    raise UserError(f"limit: expected a count of at least 1 or a fraction below 1, got {limit!r:.40}")


def _fitted(adapter: Adapter, rows: Sequence[Row]) -> Adapter:
    """The adapter for all of ``rows``, if it looks at them together."""
    return adapter.over(rows) if isinstance(adapter, Columns) else adapter


def build_dataset(config: Mapping[str, Any]) -> Dataset:
    """Build the data set that ``config.dataset`` names."""
    return make(config["dataset"], "dataset")


def read_exemplars(source: Sequence[Mapping[str, Any]] | str | None) -> list[Exemplar]:
    """Read exemplars from a list of mappings (question, thought, answer) or from a YAML file.

    The file holds the list at its top or under ``exemplars``.

    Raises:
        UserError: If an entry is incomplete; it names the entry.
    """
    if isinstance(source, str):
        where, entries = source, _from_yaml(local_path("dataset.exemplars", source))
    else:
        where, entries = "dataset.exemplars", source or ()
    exemplars: list[Exemplar] = []
    for position, entry in enumerate(entries, start=1):
        try:
            parts = (fields.text(entry, key) for key in ("question", "thought", "answer"))
            exemplars.append(Exemplar(*parts))
        except UserError as error:
            raise UserError(f"{where} entry {position}: {error}") from error
    return exemplars


def _from_yaml(file: Path) -> list[Mapping[str, Any]]:
    try:
        content: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"dataset.exemplars: expected a YAML file, got {file} ({error!s:.160})") from error
    content = content.get("exemplars") if isinstance(content, Mapping) else content
    if not isinstance(content, list) or not all(isinstance(entry, Mapping) for entry in content):
        raise UserError(f"{file}: expected a list of entries with question, thought and answer")
    return content
