"""``report.html``: a run as a page that opens from disk: every problem with its rounds, verdicts and votes.

The template renders the list of problems, and each problem as an article. An article is packed in its row of
the list, and the page unpacks it when the problem is opened, so that a run of thousands opens at once.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from soft_reasoning.judge.final import stored_verdicts
from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.lab.runs.files import PAGE, Json, write_text
from soft_reasoning.lab.runs.records import Graded, Record

KINDS = {
    "right": ("correct", "the final answer is correct"),
    "lost": ("covered but lost", "the final answer is wrong, but a candidate is correct"),
    "wrong": ("not covered", "the final answer is wrong, and so is every candidate"),
    "unparsed": ("unparsed", "no final answer could be read"),
    "open": ("no gold", "there is no reference answer"),
}
"""Label and description of what became of a problem."""


def kind_of(graded: Graded) -> str:
    """Return what became of a problem, a key of ``KINDS``."""
    if graded.answer is None:
        return "unparsed"
    if graded.correct is None:
        return "open"
    return "right" if graded.correct else "lost" if graded.covered else "wrong"


def rounds_of(record: Record, graded: Graded) -> list[Json]:
    """Return the rounds of a problem for the template: cards of candidates, and what the verifier said.

    A card's ``same`` is the number of the first candidate with the same text, if that is an earlier one.
    """
    result, first, cards = record.result, dict[str, int](), defaultdict[int, list[Json]](list)
    rows = zip(result.candidates, graded.candidates, strict=True)
    for number, (candidate, (answer, right)) in enumerate(rows, start=1):
        same = first.setdefault(candidate.written.strip(), number)
        card = {"number": number, "candidate": candidate, "answer": answer, "right": right}
        cards[candidate.round].append(card | {"same": same if same < number else None})
    traced = zip(result.trace, stored_verdicts(result.trace), graded.verifier, strict=True)
    entries = {entry.get("round"): (entry, verdict, rights) for entry, verdict, rights in traced}
    rounds: list[Json] = []
    for number in sorted(cards):
        entry, verdict, rights = entries.get(number, ({}, None, ()))
        rounds.append(
            {"number": number, "cards": cards[number], "entry": entry, "verdict": verdict, "rights": rights}
        )
    return rounds


def value_at(values: Sequence[Any] | None, place: int) -> Any:
    """The value of a candidate in a round's ``values``, which may lack it."""
    return values[place] if values and place < len(values) else None


def write_page(
    folder: Path,
    title: str,
    manifest: Json,
    grader: str,
    rows: Sequence[tuple[Record, Graded]],
    tables: Sequence[Table],
    pictures: Mapping[str, str],
) -> None:
    """Write ``report.html`` of the run in ``folder``.

    Args:
        folder: The run's folder.
        title: The page's title.
        manifest: The run's manifest.
        grader: The name of the grader.
        rows: The run's problems and their grades.
        tables: The run's tables.
        pictures: SVG files of the folder by title.
    """
    config = manifest["config"]
    templates = Environment(  # texts of models and data sets are escaped wherever they stand
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {"pack": pack, "digest": _digest, "data": _data, "at": value_at}
    templates.filters.update(filters)
    page = templates.get_template("page.html").render(
        title=title,
        about=[
            f"model {(config.get('model') or {}).get('path', 'unknown')}",
            f"seed {config.get('seed')}",
            f"grader {grader}",
        ],
        command=manifest["command"],
        rule=((config.get("method") or {}).get("final") or {}).get("rule"),
        kinds=KINDS,
        counts=Counter(kind_of(row) for _, row in rows),
        problems=((record, row, kind_of(row), rounds_of(record, row)) for record, row in rows),
        tables=tables,
        pictures={name: (folder / file).read_bytes() for name, file in pictures.items()},
    )
    write_text(folder / PAGE, page)


def pack(article: str) -> str:
    """Return an article as JSON, compressed, in letters that are safe in HTML."""
    text = json.dumps(str(article))  # ASCII, so half a surrogate pair too
    return _data(gzip.compress(text.encode("ascii"), 6, mtime=0))


def _data(content: bytes) -> str:
    return b64encode(content).decode("ascii")


def _digest(text: str) -> str:
    return "sha256-" + _data(hashlib.sha256(str(text).encode()).digest())
