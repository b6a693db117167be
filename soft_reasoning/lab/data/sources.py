"""Sources of rows: a local file in the original layout, or the Hugging Face hub.

Values stay as they are written. (``datasets.load_dataset`` and pandas infer types of columns: ``007`` becomes
7, ``NA`` missing, and a whole number a float in a column with fractions or missing values.)
"""

from __future__ import annotations

import csv
import json
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from soft_reasoning.checks import local_path
from soft_reasoning.engine.paths import try_hub
from soft_reasoning.lab.data.fields import Doc
from soft_reasoning.types import UserError

csv.field_size_limit(2**31 - 1)  # a question that is too long is refused later


@dataclass(frozen=True)
class Row:
    """One row: its fields, and its place ("file.jsonl line 3") for errors."""

    where: str
    doc: Doc


@contextmanager
def located(where: str) -> Generator[None]:
    """Put a place before errors inside."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


@dataclass(frozen=True)
class Hub:
    """A data set of the hub: ``id`` (owner/name), ``config``, ``split``, ``revision`` (branch or commit)."""

    id: str
    split: str
    config: str | None = None
    revision: str | None = None


def three_ways(hub: Hub) -> str:
    """Return the end of an error message: how to provide a data set."""
    return (
        f"provide it in one of three ways: with network, from the hub as {hub.id} (dataset.path=null); "
        f"offline, from a cache that holds {hub.id} (HF_HOME=<folder> HF_HUB_OFFLINE=1); or "
        f"dataset.path=<local file, {' '.join(READERS)}>"
    )


def read_file(path: str, hub: Hub | None = None, key: str = "dataset.path") -> list[Row]:
    """Return all rows of a file: JSONL, JSON or YAML (a list of objects), CSV, or Parquet.

    Raises:
        UserError: If the file is missing, of another type, or broken (with the line).
    """
    file = local_path(key, path)
    if not file.is_file():
        fix = "give the path of an existing file" if hub is None else three_ways(hub)
        raise UserError(f"{key}: no file {file}; {fix}")
    read = READERS.get(file.suffix.lower())
    if read is None:
        raise UserError(f"{key}: expected a file ending in {', '.join(READERS)}, got {file}")
    rows: list[Row] = []
    try:
        for place, doc in read(file):
            if not isinstance(doc, dict):
                raise ValueError(f"no object with fields but {doc!s:.60}")
            rows.append(Row(f"{file} {place}", doc))
    except (OSError, ValueError, RecursionError, csv.Error, yaml.YAMLError) as error:
        where = f"after {rows[-1].where}" if rows else file
        form = file.suffix[1:].upper()
        raise UserError(f"{where}: expected {form} in UTF-8, got an error ({error!s:.200})") from error
    if not rows:
        raise UserError(f"{file}: expected at least one row, got none")
    return rows


def _jsonl(file: Path) -> Iterator[tuple[str, object]]:
    with file.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield f"line {number}", json.loads(line)


def _json(file: Path) -> Iterator[tuple[str, object]]:
    text = file.read_text(encoding="utf-8-sig")
    docs = json.loads(text) if file.suffix.lower() == ".json" else yaml.safe_load(text)
    if not isinstance(docs, list):
        raise ValueError("no list of objects; one object per line is a .jsonl file")
    return _numbered(docs)


def _csv(file: Path) -> Iterator[tuple[str, object]]:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)  # else an open quote swallows the rows after it
        names = [name for name in reader.fieldnames or () if name]  # cells after the last column have none
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"the column '{repeated[0]}' twice; rename or delete one")
        for number, doc in enumerate(reader, start=1):
            if None in doc or None in doc.values():
                raise ValueError("more or fewer fields than columns; quote fields that hold commas or quotes")
            yield f"row {number}", doc


def _parquet(file: Path) -> Iterator[tuple[str, object]]:
    from pyarrow.parquet import read_table

    return _numbered(read_table(file).to_pylist())


def _numbered(docs: Iterable[object]) -> Iterator[tuple[str, object]]:
    return ((f"row {number}", doc) for number, doc in enumerate(docs, start=1))


READERS = {".jsonl": _jsonl, ".json": _json, ".yaml": _json, ".csv": _csv, ".parquet": _parquet}


def read_hub(hub: Hub) -> list[Row]:
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
            f"{error!s:.200}); {three_ways(hub)}"
        ) from error
    return [Row(f"{hub.id} {hub.split} row {i}", dict(doc)) for i, doc in enumerate(table)]
