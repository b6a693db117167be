"""A page with its data: packed, and written with the scripts and styles of ``page/``.

The index holds the table of problems and is unpacked when the page opens. A problem's details are in a shard,
which is unpacked when one of its problems is opened; it also holds the formulas of its problems.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.lab.reports.viewer.formulas import FORMULA, formulas_in
from soft_reasoning.lab.runs.files import PAGE, write_text

SHARD = 32
"""Problems in a shard."""

SOURCES = Path(__file__).parent / "page"
SCRIPTS = ("dom", "data", "math", "text", "list", "problem", "run", "main")

Entry = tuple[list[Any], Any]
"""A problem's row in the table, and the details for its page."""


def write_page(
    folder: Path,
    title: str,
    head: Mapping[str, Any],
    entries: Iterable[Entry],
    tables: Sequence[Table],
    pictures: Mapping[str, str],
) -> list[list[Any]]:
    """Write ``report.html`` into ``folder``, and return the rows of its table of problems.

    Args:
        folder: The run's folder.
        title: The page's title.
        head: The page's summary of the run.
        entries: An entry for each problem.
        tables: The tables above the problems.
        pictures: SVG files of the folder by title, in the colours of ``reports.plots``.
    """
    rows: list[list[Any]] = []
    shards: list[str] = []
    remaining = iter(entries)
    while shard := list(islice(remaining, SHARD)):  # all details may not fit into memory
        rows += [row for row, _ in shard]
        shards.append(pack({"details": [detail for _, detail in shard], "formulas": formulas_in(shard)}))
    data = {f"shard-{number}": shard for number, shard in enumerate(shards)}
    about = {
        "title": title,
        "tables": [asdict(table) for table in tables],
        "pictures": [[name, _address((folder / file).read_text("utf-8"))] for name, file in pictures.items()],
    }
    data["index"] = pack({**head, **about, "rows": rows, "shard": SHARD})
    write_text(folder / PAGE, _page(title, data))
    return rows


def pack(value: Any) -> str:
    """``value`` as JSON, compressed, in letters that are safe in HTML and JavaScript."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII, so half a surrogate pair too
    return b64encode(gzip.compress(text.encode("ascii"), mtime=0)).decode("ascii")


def _page(title: str, data: Mapping[str, str]) -> str:
    style = (SOURCES / "style.css").read_text(encoding="utf-8")
    script = "\n".join((SOURCES / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    script = f'"use strict";\nconst FORMULA = new RegExp({json.dumps(FORMULA)}, "g");\n{script}'
    parts = {
        "title": html.escape(title),
        "policy": f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; "
        f"script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'",
        "style": style,
        "data": "\n".join(
            f'<script type="text/plain" id="{name}">{packed}</script>' for name, packed in data.items()
        ),
        "script": script,
    }
    page = (SOURCES / "page.html").read_text(encoding="utf-8")
    for name, text in parts.items():
        page = page.replace("{{" + name + "}}", text, 1)
    return page


def _address(picture: str) -> str:
    """A data URL of the SVG ``picture``, with the colours of ``picture.css`` by name, and its letters."""
    style = (SOURCES / "picture.css").read_text(encoding="utf-8")
    light, _, _ = style.partition("@media")
    for name, colour in re.findall(r"(--\w+): (#\w+)", light):
        picture = picture.replace(colour, f"var({name})")
    picture = picture.replace("<defs>", f"<defs><style>{style}</style>", 1)
    return f"data:image/svg+xml;base64,{b64encode(picture.encode()).decode('ascii')}"


def _digest(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def short(value: Any) -> Any:
    """A float with four digits, infinity as text since JSON lacks it; other values as they are."""
    if not isinstance(value, float):
        return value
    number = float(f"{value:.4g}")
    return number if abs(number) < float("inf") else str(number)
