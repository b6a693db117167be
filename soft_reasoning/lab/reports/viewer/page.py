"""``report.html``: every problem of a run with its rounds, candidates, verdicts and final vote.

The template renders the list of problems, and each problem as an article. Articles are packed in shards, of
which the page unpacks one when one of its problems is opened, so that a run of thousands opens at once.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.lab.reports.viewer.formulas import with_formulas
from soft_reasoning.lab.runs.files import PAGE, write_text
from soft_reasoning.lab.runs.records import Outcome, Record, TracedRound, VoteGrade, read_records
from soft_reasoning.types import Candidate

T = TypeVar("T")

SHARD = 32
"""Problems in a shard."""

SOURCES = Path(__file__).parent / "templates"

KINDS = {
    "right": ("correct", "the final answer is correct"),
    "lost": ("covered but lost", "the final answer is wrong, but a candidate is correct"),
    "wrong": ("not covered", "the final answer is wrong, and so is every candidate"),
    "unparsed": ("unparsed", "no final answer could be read"),
    "open": ("no gold", "there is no reference answer"),
}
"""Label and description of what became of a problem."""


@dataclass(frozen=True)
class Row:
    """A problem's line in the list.

    Attributes:
        id: The problem's id.
        question: Its question.
        gold: Its reference answer.
        answer: The final answer.
        correct: Whether it is correct.
        right: Number of correct candidates.
        candidates: Number of candidates.
        rounds: Number of rounds.
        tokens: Generated tokens.
        answers: Number of different answers of candidates.
    """

    id: str
    question: str
    gold: str | None
    answer: str | None
    correct: bool | None
    right: int
    candidates: int
    rounds: int
    tokens: int
    answers: int

    @classmethod
    def of(cls, record: Record, outcome: Outcome) -> Row:
        """Return the line of a record."""
        problem, result, answers = record.problem, record.result, outcome.candidates
        return cls(
            problem.id,
            problem.question,
            problem.gold,
            outcome.answer,
            outcome.correct,
            right=sum(right is True for _, right in answers),
            candidates=len(answers),
            rounds=len({candidate.round for candidate in result.candidates}),
            tokens=sum(usage.generated_tokens for usage in result.usage.values()),
            answers=len({answer for answer, _ in answers} - {None}),
        )

    @property
    def kind(self) -> str:
        """What became of the problem, a key of ``KINDS``."""
        if self.answer is None:
            return "unparsed"
        if self.correct is None:
            return "open"
        return "right" if self.correct else "lost" if self.right else "wrong"

    @property
    def shown_by(self) -> str:
        """The keys of the filters that show it."""
        return " ".join(key for key, (_, _, shows) in FILTERS.items() if shows(self))


FILTERS: Mapping[str, tuple[str, str, Callable[[Row], bool]]] = {
    "all": ("all", "", lambda row: True),
    "right": ("correct", "", lambda row: row.correct is True),
    "wrong": ("wrong", "", lambda row: row.correct is False),
    "lost": (
        "covered but lost",
        "wrong, although a candidate is correct",
        lambda row: row.correct is False and row.right > 0,
    ),
    "unparsed": ("unparsed", "no final answer could be read", lambda row: row.answer is None),
    "split": ("candidates disagree", "", lambda row: row.answers > 1),
}
"""Label, description and condition of each filter of the list."""

COLUMNS = {
    "id": "problem",
    "question": "question",
    "outcome": "outcome",
    "answer": "answer",
    "gold": "reference",
    "candidates": "correct candidates",
    "rounds": "rounds",
    "tokens": "tokens",
}
"""Labels of the list's columns."""

GRADED = ("right", "wrong", "lost", "gold", "candidates")
"""Filters and columns that need reference answers."""


EXPECTED = "posterior mean and deviation of the reward before the point was tried"


@dataclass(frozen=True)
class Card:
    """A candidate on the page of its problem.

    Attributes:
        number: Its number in the problem, from 1.
        candidate: The candidate.
        place: Its place in its round, from 0.
        answer: Its answer, as the grader reads it.
        right: Whether it is correct.
        shade: Its reward in percent between the problem's lowest and highest reward; None without a reward.
        same: The number of the first candidate with the same text, if that is an earlier one.
    """

    number: int
    candidate: Candidate
    place: int
    answer: str | None
    right: bool | None
    shade: int | None
    same: int | None

    def traced(self, values: Sequence[T]) -> T | None:
        """Return its value among a round's ``values``, which may lack it."""
        return values[self.place] if self.place < len(values) else None

    def facts(self, traced: TracedRound) -> list[tuple[str, str, str]]:
        """Return the name, value and description of what is known of it; ``traced`` is its round's."""
        c, cut = self.candidate, self.candidate.cut
        mean, sd = (_rounded(self.traced(values)) for values in (traced.mean, traced.sd))
        first = self.traced(traced.first_tokens)
        facts = [
            ("reward", _rounded(c.reward), ""),
            ("verdict", _rounded(c.verified), "the verifier's score, its confidence included"),
            ("agreement", _rounded(c.judged), "the verifier's score before confidence"),
            ("coherence", _rounded(c.coherence, 3), ""),
            ("expected", mean and mean + (f" ± {sd}" if sd else ""), EXPECTED),
            ("delta", _rounded(self.traced(traced.deltas)), ""),
            ("first token", first and json.dumps(first, ensure_ascii=False), ""),
            ("tokens", f"{c.generated_tokens}{', cut' * cut}", "a limit of tokens or time was reached" * cut),
        ]
        if c.judged == c.verified:
            del facts[2]
        return [(name, value, description) for name, value, description in facts if value is not None]


@dataclass(frozen=True)
class Column:
    """A round on the page of its problem: its candidates and what the trace says of it."""

    number: int
    cards: list[Card]
    traced: TracedRound
    right: Sequence[bool | None]

    @property
    def mean_reward(self) -> float | None:
        """The mean reward of its candidates."""
        rewards = [r for card in self.cards if (r := card.candidate.reward) is not None]
        return sum(rewards) / len(rewards) if rewards else None


def _rounded(value: float | None, digits: int = 2) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def columns_of(record: Record, outcome: Outcome) -> list[Column]:
    """Return the rounds of a problem."""
    traced = {
        entry.number: (entry, right) for entry, right in zip(record.rounds, outcome.verifier, strict=True)
    }
    rewards = [c.reward for c in record.result.candidates if c.reward is not None]
    columns: dict[int, Column] = {}
    first: dict[str, int] = {}
    rows = zip(record.result.candidates, outcome.candidates, strict=True)
    for number, (candidate, (answer, right)) in enumerate(rows, start=1):
        if candidate.round not in columns:
            entry, verified = traced.get(candidate.round, (TracedRound.of({}), ()))
            columns[candidate.round] = Column(candidate.round, [], entry, verified)
        cards = columns[candidate.round].cards
        same = first.setdefault(candidate.written.strip(), number)
        shade, earlier = _shade(candidate.reward, rewards), same if same < number else None
        cards.append(Card(number, candidate, len(cards), answer, right, shade, earlier))
    return [columns[number] for number in sorted(columns)]


def _shade(reward: float | None, rewards: Sequence[float]) -> int | None:
    if reward is None:
        return None
    low, high = min(rewards), max(rewards)
    return percent_of(reward - low, high - low) if high > low else 100


def bars_of(votes: Sequence[VoteGrade]) -> list[tuple[VoteGrade, int, int]]:
    """Return each vote with the widths, in percent, of its candidates' part and the verifier's part."""
    bars: list[tuple[VoteGrade, float, float]] = []
    for vote in votes:
        if vote.weight is None:
            bars.append((vote, vote.candidates, vote.verifier))
        else:
            by_verifier = vote.by_verifier or 0.0
            bars.append((vote, vote.weight - by_verifier, by_verifier))
    most = max((own + verifier for _, own, verifier in bars), default=0.0)
    return [(vote, percent_of(own, most), percent_of(verifier, most)) for vote, own, verifier in bars]


def percent_of(part: float, whole: float) -> int:
    """Return the share of ``part`` as a whole number; 0 where there is none."""
    share = 100 * part / whole if whole else 0.0
    return round(share) if math.isfinite(share) else 0


def write_page(
    folder: Path,
    title: str,
    manifest: Mapping[str, Any],
    grader: str,
    outcomes: Mapping[str, Outcome],
    tables: Sequence[Table],
    pictures: Mapping[str, str],
) -> list[Row]:
    """Write ``report.html`` of the run in ``folder``, and return its list of problems.

    Args:
        folder: The run's folder.
        title: The page's title.
        manifest: The run's manifest.
        grader: The name of the grader.
        outcomes: The outcomes of the run's problems; other problems are left out.
        tables: The run's tables.
        pictures: SVG files of the folder by title, in the colours of ``reports.plots``.
    """
    config = manifest["config"]
    rule = ((config.get("method") or {}).get("final") or {}).get("rule")
    model = (config.get("model") or {}).get("path", "unknown")
    templates = _templates()
    article: Any = templates.get_template("problem.html").module
    rows: list[Row] = []
    shards: list[str] = []
    records = (record for record in read_records(folder) if record.problem.id in outcomes)
    while shard := list(islice(records, SHARD)):  # all articles may not fit into memory
        articles: list[str] = []
        for record in shard:
            outcome = outcomes[record.problem.id]
            rows.append(row := Row.of(record, outcome))
            columns, bars = columns_of(record, outcome), bars_of(outcome.votes)
            articles.append(article.problem(row, record, columns, bars, rule))
        shards.append(pack(articles))
    style, script = ((SOURCES / name).read_text(encoding="utf-8") for name in ("style.css", "script.js"))
    style += "".join(f".w{i}{{width:{i}%}}.at{i}{{background-position-x:{i}%}}" for i in range(101))
    graded = any(row.correct is not None for row in rows)
    page = templates.get_template("run.html").render(
        title=title,
        about=[f"model {model}", f"seed {config.get('seed')}", f"grader {grader}"],
        command=manifest["command"],
        rows=rows,
        counts=Counter(row.kind for row in rows),
        graded=graded,
        filters=[
            (key, label, description, sum(map(shows, rows)))
            for key, (label, description, shows) in FILTERS.items()
            if graded or key not in GRADED
        ],
        columns={key: label for key, label in COLUMNS.items() if graded or key not in GRADED},
        tables=tables,
        pictures={name: _address((folder / file).read_text("utf-8")) for name, file in pictures.items()},
        shards=shards,
        shard_size=SHARD,
        style=Markup(style),
        script=Markup(script),
        policy=Markup(
            f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; "
            f"script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
        ),
    )
    write_text(folder / PAGE, page)
    return rows


def _templates() -> Environment:
    """The templates; text of models and data sets is escaped wherever it stands."""
    templates = Environment(
        loader=FileSystemLoader(SOURCES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {"with_formulas": with_formulas, "percent_of": percent_of}
    names: dict[str, Any] = {"kinds": KINDS}
    templates.filters.update(filters)
    templates.globals.update(names)
    return templates


def pack(articles: Sequence[str]) -> str:
    """``articles`` as JSON, compressed, in letters that are safe in HTML."""
    text = json.dumps(articles, separators=(",", ":"))  # ASCII, so half a surrogate pair too
    return b64encode(gzip.compress(text.encode("ascii"), 6, mtime=0)).decode("ascii")


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
