"""Sources of rows: a local file in the original layout, or the Hugging Face hub.

Values stay as they are written. (``datasets.load_dataset`` infers types of columns: ``007`` becomes 7, ``NA``
missing, and a whole number in a column with fractions a float.)
"""

from __future__ import annotations

import csv
import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soft_reasoning.checks import local_path
from soft_reasoning.engine.paths import try_hub
from soft_reasoning.types import UserError


@dataclass(frozen=True)
class Row:
    """One row: its fields, its index, and its place ("file.jsonl line 3") for errors."""

    where: str
    index: int
    doc: Mapping[str, object]


@contextmanager
def located(row: Row) -> Generator[None]:
    """Put the row's place before errors inside."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{row.where}: {error}") from error


@dataclass(frozen=True)
class Hub:
    """A data set of the hub: ``id`` (owner/name), ``config``, ``split``, ``revision`` (branch or commit)."""

    id: str
    split: str
    config: str | None = None
    revision: str | None = None


def three_ways(hub: Hub, key: str) -> str:
    """Return the end of an error message: how to provide a data set; ``key`` takes a local file."""
    return (
        f"provide it in one of three ways: with network, from the hub as {hub.id} ({key}=null); "
        f"offline, from a cache that holds {hub.id} (HF_HOME=<folder> HF_HUB_OFFLINE=1); or "
        f"{key}=<local file, {' '.join(READERS)}>"
    )


def read_file(path: str, hub: Hub | None = None, key: str = "dataset.path") -> list[Row]:
    """Return all rows of a JSONL, JSON (array of objects), CSV or Parquet file.

    Raises:
        UserError: If the file is missing, of another type, or broken (with the line).
    """
    file = local_path(key, path)
    if not file.is_file():
        fix = "give the path of an existing file" if hub is None else three_ways(hub, key)
        raise UserError(f"{key}: no file {file}; {fix}")
    if file.suffix.lower() not in READERS:
        raise UserError(f"{key}: expected a file ending in {', '.join(READERS)}, got {file}")
    rows: list[Row] = []
    where = str(file)
    try:
        for place, doc in READERS[file.suffix.lower()](file):
            where = f"{file} {place}"
            if file.suffix.lower() == ".jsonl":  # parsed here, where an error gets the line's number
                doc = json.loads(doc, object_pairs_hook=_fields)
            if not isinstance(doc, Mapping):
                raise UserError(f"{where}: expected an object with fields, got {type(doc).__name__}")
            rows.append(Row(where, len(rows), doc))
    except _RepeatedError as error:
        raise UserError(
            f"{where}: expected each column once, got '{error.args[0]}' again; rename or delete one"
        ) from error
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError, csv.Error) as error:  # of JSON, CSV, Parquet or UTF-8
        form = file.suffix[1:].upper()
        raise UserError(
            f"{where}: expected {form} in UTF-8, got an error ({error!s:.200}); fix the file"
        ) from error
    if not rows:
        names = "; the first line of a CSV file holds its columns' names" if file.suffix == ".csv" else ""
        raise UserError(f"{file}: expected at least one row, got none{names}")
    return rows


class _RepeatedError(Exception):
    """The name of a column or field that is there twice."""


def _fields(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a JSON object."""
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise _RepeatedError(name)
        fields[name] = value
    return fields


def _check_columns(names: Iterable[str]) -> None:
    _fields((name, None) for name in names if name)  # empty cells after the last column have no name


def _jsonl(file: Path) -> Iterator[tuple[str, str]]:
    with file.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield f"line {number}", line


def _json(file: Path) -> Iterator[tuple[str, Any]]:
    docs = json.loads(file.read_text(encoding="utf-8-sig"), object_pairs_hook=_fields)
    if not isinstance(docs, list):
        raise UserError(
            f"{file}: expected a JSON array of objects, got {type(docs).__name__}; "
            "put one object per line into a .jsonl file"
        )
    for number, doc in enumerate(docs, start=1):
        yield f"element {number}", doc


def _csv(file: Path) -> Iterator[tuple[str, Any]]:
    with file.open(encoding="utf-8-sig", newline="") as lines, _any_length():
        reader = csv.DictReader(lines, strict=True)  # else an open quote swallows the rows after it
        _check_columns(reader.fieldnames or ())
        number = 0
        try:
            for number, doc in enumerate(reader, start=1):
                if None in doc or None in doc.values():
                    actual = "more" if None in doc else "fewer"
                    raise UserError(
                        f"{file} row {number}: expected the columns of its first line, got {actual}; "
                        "quote fields that hold commas"
                    )
                yield f"row {number}", doc
        except csv.Error as error:
            raise UserError(
                f"{file} row {number + 1}: expected CSV, got an error ({error}); put a field that begins "
                "with a quote into quotes, and write each quote in it twice"
            ) from error


@contextmanager
def _any_length() -> Generator[None]:
    """Let fields of CSV be longer than 131,072 characters; a question that is too long is rejected later."""
    limit = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _parquet(file: Path) -> Iterator[tuple[str, Any]]:
    from pyarrow.parquet import read_schema, read_table

    _check_columns(read_schema(file).names)
    for number, doc in enumerate(read_table(file).to_pylist(), start=1):
        yield f"row {number}", doc


READERS = {".jsonl": _jsonl, ".json": _json, ".csv": _csv, ".parquet": _parquet}


def read_hub(hub: Hub, key: str) -> list[Row]:
    """Return all rows of a split, downloaded or from the cache.

    Raises:
        UserError: If the hub does not provide it; the message lists the alternatives.
    """
    try_hub()  # before datasets reads whether there is one
    import datasets

    try:
        table = datasets.load_dataset(hub.id, hub.config, split=hub.split, revision=hub.revision)
    except Exception as error:  # network, cache, name, split or access: no common base class
        raise UserError(
            f"data set {hub.id} (split {hub.split}) could not be loaded ({type(error).__name__}: "
            f"{error!s:.200}); {three_ways(hub, key)}"
        ) from error
    if not len(table):
        raise UserError(
            f"data set {hub.id} (split {hub.split}): expected at least one row, got none; choose another"
        )
    return [Row(f"{hub.id} {hub.split} row {i}", i, dict(doc)) for i, doc in enumerate(table)]
