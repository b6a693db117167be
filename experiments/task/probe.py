"""How well hidden states and votes tell right solutions from wrong ones.

    python -m experiments.task.probe FOLDER RECORDING.csv [RECORDING.csv ...] [--test 100]
        [--carry FOLDER RECORDING.csv] [--scores OUT.csv]

FOLDER holds texts and states of ``experiments.task.states``, the recordings the programs of its questions;
questions without programs are left out. A judge is a logistic regression with a ridge on principal
components of the states (scikit-learn) and on votes. It is cross-validated by question: fitted on four
fifths for the last fifth, twice with other folds; its scores are the means. "Within" is the mean AUC of the
questions with right and wrong texts.
``--test`` also fits on all but the last questions and judges these; ``--carry`` fits on the first recording
and judges the second. ``--scores`` writes every text's answer and scores, without the text.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from experiments.real_models.record import stored
from experiments.real_models.recording import Answered, Recorded, load
from experiments.real_models.rules import (
    Rules,
    minus,
    others_agree,
    probability,
    programs_agree,
    within_question_auc,
)
from experiments.task.states import KINDS, SHARES
from soft_reasoning.answers import Grader
from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.method.mixed_consistency import MixedConsistency
from soft_reasoning.task.fitting import ProbeFitting, regression
from soft_reasoning.task.probe import vote_shares

REPEATS = 2
SHIPPED = "mean and last state, votes"
"""What ``verifier=probe`` reads."""
WRITTEN = (
    "votes of the other texts",
    "four programs",
    "states at 0.67, mean and last",
    SHIPPED,
    f"{SHIPPED}, programs",
)
"""The judges whose scores are written."""
Outcome: TypeAlias = tuple[list[bool], float]
"""Whether each question is answered rightly, and the mean tokens of a question."""


@dataclass(frozen=True)
class Labelled:
    """A recording's questions, with the states of all their texts, one after the other."""

    ids: Sequence[str]
    questions: Sequence[Recorded]
    states: np.ndarray
    """(texts, layers, kinds, D)"""

    @property
    def groups(self) -> np.ndarray:
        """The number of each text's question."""
        return np.repeat(np.arange(len(self.questions)), [len(q.texts) for q in self.questions])

    @property
    def answered(self) -> np.ndarray:
        """Whether a text has an answer; the package fits on these alone, and the others score 0."""
        return np.array([text.answer is not None for q in self.questions for text in q.texts])

    @property
    def right(self) -> np.ndarray:
        return np.array([text.right for q in self.questions for text in q.texts])

    def of_texts(self, judge: object) -> np.ndarray:
        """The scores of a judge, text after text."""
        return np.array([judge(q, i) for q in self.questions for i in range(len(q.texts))])

    def shares(self, count: int) -> np.ndarray:
        """(texts, 1): the share of the question's other texts, among the first ``count``, that agree."""
        grader, columns = Grader(), list[float]()
        for question in self.questions:
            answers = [text.answer for text in question.texts]
            shares = vote_shares(answers[:count], grader, question.kind)
            columns += [*shares, *[0.0] * (len(answers) - len(shares))]
        return np.array(columns)[:, None]

    def of(self, first: int, last: int | None) -> Labelled:
        """The questions from ``first`` to ``last``, as in a slice."""
        chosen = np.isin(self.groups, np.arange(len(self.questions))[first:last])
        return Labelled(self.ids[first:last], self.questions[first:last], self.states[chosen])

    @property
    def shipped(self) -> list[np.ndarray]:
        """The states that ``verifier=probe`` reads."""
        return [self.part("mean", 2), self.part("last", 2)]

    def by_question(self, scores: np.ndarray) -> list[list[float]]:
        return [scores[self.groups == g].tolist() for g in range(len(self.questions))]

    def part(self, kind: str, layer: int) -> np.ndarray:
        """(texts, D): the states of one kind and layer."""
        return self.states[:, layer, KINDS.index(kind)].astype(np.float64)


def read(folder: Path, *recordings: Path) -> Labelled:
    """The questions in ``folder`` whose programs are in ``recordings``."""
    known = dict[str, Recorded]()
    for recording in recordings:
        table = pd.read_csv(recording, dtype={"id": str}, usecols=["id"])
        known |= zip(dict.fromkeys(table.id), load(recording), strict=True)
    grader, ids, questions, states = Grader(), list[str](), list[Recorded](), list[np.ndarray]()
    for path in sorted(folder.glob("states-*.npz"), key=lambda path: int(path.stem.partition("-")[2])):
        lines = stored(folder / f"texts-{path.stem.partition('-')[2]}.jsonl")
        block = np.load(path)["states"]
        for name in dict.fromkeys(line["id"] for line in lines if line["id"] in known):
            rows = [i for i, line in enumerate(lines) if line["id"] == name]
            texts = []
            for line in (lines[i] for i in rows):
                answer = grader.extract(line["text"], line["type"], cut=line["cut"])
                right = grader.equal(answer, line["gold"], line["type"])
                texts.append(Answered(answer, bool(right), line["tokens"], line["logprob"]))
            ids.append(name)
            questions.append(replace(known[name], texts=texts))
            states.append(block[rows])
    return Labelled(ids, questions, np.concatenate(states))


class Judge:
    """The package's regression on any states and further columns."""

    def __init__(self, parts: Sequence[np.ndarray], more: np.ndarray, right: np.ndarray) -> None:
        settings = ProbeFitting()
        count = min(settings.components, len(right) // 2)
        self._model = regression([part.shape[1] for part in parts], count, settings.strength)
        self._model.fit(np.concatenate([*parts, more], 1), right)

    def scores(self, parts: Sequence[np.ndarray], more: np.ndarray) -> np.ndarray:
        return self._model.predict_proba(np.concatenate([*parts, more], 1))[:, 1]


def cross_validated(
    data: Labelled,
    parts: Sequence[np.ndarray],
    more: np.ndarray | None = None,
    *,
    asked: Sequence[np.ndarray] | None = None,
    train: int | None = None,
) -> np.ndarray:
    """Each text's score by judges that did not see its question, fitted on at most ``train`` questions.

    With ``asked`` there is a row of scores for each of these columns in the place of ``more``.
    """
    count = len(data.questions)
    more = np.zeros((len(data.right), 0)) if more is None else more
    columns = [more] if asked is None else asked
    scores = np.zeros((len(columns), len(data.right)))
    for repeat in range(REPEATS):
        stream = np.random.default_rng(repeat)
        for fold in np.array_split(stream.permutation(count), 5):
            seen = stream.permutation(np.setdiff1d(np.arange(count), fold))[:train]
            fit, test = np.isin(data.groups, seen) & data.answered, np.isin(data.groups, fold)
            judge = Judge([part[fit] for part in parts], more[fit], data.right[fit])
            for row, column in zip(scores, columns, strict=True):
                row[test] += judge.scores([part[test] for part in parts], column[test]) / REPEATS
    scores[:, ~data.answered] = 0.0
    return scores[0] if asked is None else scores


def figures(data: Labelled, scores: np.ndarray) -> list[str]:
    """AUC over all texts with its interval by questions, and the mean AUC within a question."""
    stream = np.random.default_rng(0)
    within = within_question_auc(data.questions, data.by_question(scores))
    drawn = []
    places = [np.flatnonzero(data.groups == g) for g in range(len(data.questions))]
    for _ in range(300):
        rows = np.concatenate([places[g] for g in stream.integers(0, len(places), len(places))])
        if 0 < data.right[rows].sum() < len(rows):
            drawn.append(roc_auc_score(data.right[rows], scores[rows]))
    low, high = np.percentile(drawn, [2.5, 97.5])
    error = np.std(within) / np.sqrt(len(within))
    return [
        f"{roc_auc_score(data.right, scores):.3f} ({low:.3f} to {high:.3f})",
        f"{np.mean(within):.3f} ± {error:.3f} ({len(within)})",
    ]


def weighted(data: Labelled, scores: Sequence[np.ndarray], programs: int, confidence: float) -> Outcome:
    """Outcome of ``mixed_consistency`` whose solutions weigh as the row of ``scores`` for their number."""
    method, rows = MixedConsistency(confidence=confidence), [data.by_question(row) for row in scores]
    outcomes = [
        Rules(question).mixed(len(question.texts), programs, method, [row[group] for row in rows])
        for group, question in enumerate(data.questions)
    ]
    return [right for right, _ in outcomes], float(np.mean([tokens for _, tokens in outcomes]))


def judges(data: Labelled) -> dict[str, np.ndarray]:
    """The scores of every judge that is compared."""
    votes, computed = data.of_texts(others_agree)[:, None], data.of_texts(programs_agree)[:, None]
    both, last = np.concatenate([votes, computed], 1), data.part("last", 2)
    scores = {
        "mean probability": data.of_texts(probability),
        "votes of the other texts": votes[:, 0],
        "four programs": computed[:, 0],
        "votes and programs, fitted": cross_validated(data, [], both),
    }
    for layer, share in enumerate(SHARES):
        for kind in KINDS if layer == 2 else KINDS[:2]:
            name = f"state at {share:.2f} of the depth, {kind}"
            scores[name] = cross_validated(data, [data.part(kind, layer)])
    return {
        **scores,
        "states at 0.67, mean and last": cross_validated(data, data.shipped),
        "last state, votes": cross_validated(data, [last], votes),
        SHIPPED: cross_validated(data, data.shipped, votes),
        "last state, votes, programs": cross_validated(data, [last], both),
        f"{SHIPPED}, programs": cross_validated(data, data.shipped, both),
    }


def rules(data: Labelled) -> dict[str, Outcome]:
    """Whether each rule is right on each question, and its mean tokens."""
    votes = data.shares(len(data.questions[0].texts))
    counts = [data.shares(n) for n in range(1, len(data.questions[0].texts) + 1)]
    weights = {
        "": np.ones((len(counts), len(data.right))),
        " weighted by their votes": cross_validated(data, [], votes, asked=counts),
        " weighted by their states": np.stack([cross_validated(data, data.shipped)] * len(counts)),
        " weighted by states and votes": cross_validated(data, data.shipped, votes, asked=counts),
    }
    found: dict[str, Outcome] = {}
    for ending, programs, confidence in [
        ("", 0, 1.0),
        (", 4 programs", 4, 1.0),
        (", 4 programs, until settled", 4, MixedConsistency().confidence),
    ]:
        for name, scores in weights.items():
            found[f"texts{name}{ending}"] = weighted(data, scores, programs, confidence)
    best = [Rules(question).covered(5) for question in data.questions]
    found["a perfect judge of the texts"] = [right for right, _ in best], float(np.mean([t for _, t in best]))
    return found


def rules_table(found: Mapping[str, Outcome]) -> Table:
    """Each rule beside the equal vote of as many texts and programs."""
    rows = []
    for name, (right, tokens) in found.items():
        equal = "texts" + name[name.index(",") :] if "," in name else "texts"
        minus_equal = "" if name == equal else minus(right, found[equal][0])
        rows.append([name, f"{100 * np.mean(right):.1f}", minus_equal, f"{tokens:.0f}"])
    return Table(["rule", "right %", "minus an equal vote of the same", "tokens"], rows)


def carried(data: Labelled, other: Labelled) -> Table:
    """What judges that are fitted on ``data`` do on ``other``."""
    whole = len(other.questions[0].texts)
    rows = []
    for name, states, votes in [("states", True, False), (SHIPPED, True, True), ("votes", False, True)]:
        parts = [x.shipped if states else [] for x in (data, other)]
        more, fit = [x.shares(whole)[:, : int(votes)] for x in (data, other)], data.answered
        judge = Judge([part[fit] for part in parts[0]], more[0][fit], data.right[fit])
        scores = np.where(other.answered, judge.scores(parts[1], more[1]), 0.0)
        cells = [name, *figures(other, scores)]
        for programs in (0, 4):
            equal = weighted(other, [np.ones(len(other.right))] * whole, programs, 1.0)[0]
            right = weighted(other, [scores] * whole, programs, 1.0)[0]
            cells.append(f"{100 * np.mean(right):.1f}: {minus(right, equal)}")
        rows.append(cells)
    columns = ["judge", "AUC over all", "AUC within a question", "texts minus majority", "with 4 programs"]
    return Table(columns, rows)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("--scores", type=Path)
    parser.add_argument("--test", type=int, help="judge the last questions by the others")
    parser.add_argument("--carry", type=Path, nargs=2, metavar=("FOLDER", "RECORDING"))
    arguments = parser.parse_args(words)
    data = read(arguments.folder, *arguments.recordings)
    share = 100 * data.right.mean()
    print(f"{len(data.questions)} questions, {len(data.right)} texts, {share:.1f} % right\n")
    if arguments.test:
        print(carried(data.of(0, -arguments.test), data.of(-arguments.test, None)).markdown(), "\n")
    if arguments.carry:
        print(carried(data, read(*arguments.carry)).markdown(), "\n")
    scored = judges(data)
    rows = [[name, *figures(data, scores)] for name, scores in scored.items()]
    print(Table(["judge", "AUC over all", "AUC within a question"], rows).markdown(), "\n")
    print(rules_table(rules(data)).markdown(), "\n")
    votes = data.shares(len(data.questions[0].texts))
    sizes = [n for n in (25, 50, 100, 200, 300) if n <= 0.8 * len(data.questions)]
    lines = [
        [str(n), *figures(data, cross_validated(data, data.shipped, train=n))]
        + figures(data, cross_validated(data, data.shipped, votes, train=n))
        for n in sizes
    ]
    columns = ["questions to learn from", "mean and last state", "within", SHIPPED, "within"]
    print(Table(columns, lines).markdown(), "\n")
    if arguments.scores:
        write_scores(arguments.scores, data, {name: scored[name] for name in WRITTEN})


def write_scores(path: Path, data: Labelled, scored: Mapping[str, np.ndarray]) -> None:
    """Write every text's answer, tokens and scores."""
    texts = [text for question in data.questions for text in question.texts]
    table = pd.DataFrame(
        {
            "id": [data.ids[g] for g in data.groups],
            "sample": [i for question in data.questions for i in range(len(question.texts))],
            "gold": [data.questions[g].gold for g in data.groups],
            "answer": [text.answer for text in texts],
            "right": data.right.astype(int),
            "tokens": [text.tokens for text in texts],
            "logprob": [text.logprob for text in texts],
            **{name: scores.round(4) for name, scores in scored.items()},
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False)


if __name__ == "__main__":
    main()
