"""A recording without texts, as ``record.py --strip`` writes it: its questions with their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.real_models.record import ANSWER, CANDIDATE, GREEDY_TEXT, PROGRAM, TEXT

KINDS = (GREEDY_TEXT, TEXT, PROGRAM)  # every other kind is a run's or a verifier's name


@dataclass(frozen=True)
class Answered:
    """A recorded text or program: its answer (None if it has none), whether that is right, and tokens."""

    answer: str | None
    right: bool
    tokens: int
    logprob: float


@dataclass(frozen=True)
class Recorded:
    """A question with its greedy text, sampled texts and programs."""

    kind: str
    gold: str
    greedy: Answered
    texts: Sequence[Answered]
    programs: Sequence[Answered]
    """Those that judge and vote."""
    further_texts: Sequence[Answered] = ()
    """Recorded for the control, the majority of as many texts as cost the same tokens."""
    further_programs: Sequence[Answered] = ()
    """The same for programs."""
    candidates: Mapping[str, Sequence[Answered]] = field(default_factory=dict)
    """A run's candidates, by the run's name."""
    answers: Mapping[str, Answered] = field(default_factory=dict)
    """A run's answer, with the tokens of the whole question, by the run's name."""
    scores: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """A verifier's score of each text, by the verifier's name; no verdict counts 0, as in a reward."""
    verifier_tokens: Mapping[str, int] = field(default_factory=dict)
    """The tokens that a verifier wrote for all texts, by its name."""


def load(path: Path, texts: int = 5, programs: int = 4) -> list[Recorded]:
    """The questions of a recording with at least ``texts`` and ``programs``, of which so many vote and judge.

    A data set without programs needs none. A verifier that scored fewer texts of a question was not asked.
    """
    table = pd.read_csv(
        path,
        dtype={"answer": str, "gold": str},
        keep_default_na=False,
        na_values={name: [""] for name in ("answer", "logprob", "score")},
    )
    least = {GREEDY_TEXT: 1, TEXT: texts}
    if (table.kind == PROGRAM).any():
        least[PROGRAM] = programs
    questions = []
    for _, rows in table.groupby("id", sort=False):
        parts = {str(kind): part.sort_values("sample") for kind, part in rows.groupby("kind")}
        if any(len(parts.get(kind, ())) < count for kind, count in least.items()):
            continue
        answered = {kind: [read(row) for row in part.itertuples()] for kind, part in parts.items()}
        written = answered.get(PROGRAM, [])
        candidates, answers = (
            {kind.removeprefix(start): x for kind, x in answered.items() if kind.startswith(start)}
            for start in (CANDIDATE, ANSWER)
        )
        verdicts = {
            kind: part
            for kind, part in parts.items()
            if kind not in KINDS and not kind.startswith((CANDIDATE, ANSWER)) and len(part) >= texts
        }
        question = Recorded(
            rows.iloc[0].type,
            rows.iloc[0].gold,
            answered[GREEDY_TEXT][0],
            answered[TEXT][:texts],
            written[:programs],
            answered[TEXT][texts:],
            written[programs:],
            candidates,
            {run: answer for run, [answer] in answers.items()},
            {name: part.score.astype(float).fillna(0.0).tolist()[:texts] for name, part in verdicts.items()},
            {name: int(part.tokens.sum()) for name, part in verdicts.items()},
        )
        questions.append(question)
    return questions


def read(row: Any) -> Answered:
    """A row of a recording."""
    return Answered(None if pd.isna(row.answer) else row.answer, bool(row.right), row.tokens, row.logprob)
