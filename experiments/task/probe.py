"""How well hidden states tell right texts from wrong ones, cross-validated by question.

    python -m experiments.task.probe RECORDING.csv FOLDER [--scores OUT.csv] [--carry RECORDING.csv FOLDER]

FOLDER holds texts and states of ``experiments.task.states``, RECORDING.csv the programs of the same
questions. The probe is a logistic regression with a ridge on principal components of the states (scikit-
learn), fitted on four fifths of the questions for the last fifth, ten times with other folds; its scores are
means over the times. "Within" is the mean AUC of the questions with right and wrong texts. ``--carry`` fits
on the first recording and judges the second. ``--scores`` writes every text's answer and scores, without the
text.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

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

COMPONENTS, STRENGTH = 32, 0.01
"""Principal components of each state, and the inverse of the ridge on the standardised components."""
REPEATS = 10


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
    def right(self) -> np.ndarray:
        return np.array([text.right for q in self.questions for text in q.texts])

    def of_texts(self, judge: object) -> np.ndarray:
        """The scores of a judge, text after text."""
        return np.array([judge(q, i) for q in self.questions for i in range(len(q.texts))])

    def by_question(self, scores: np.ndarray) -> list[list[float]]:
        return [scores[self.groups == g].tolist() for g in range(len(self.questions))]

    def part(self, kind: str, layer: int) -> np.ndarray:
        """(texts, D): the states of one kind and layer."""
        return self.states[:, layer, KINDS.index(kind)].astype(np.float64)


def read(recording: Path, folder: Path) -> Labelled:
    """The questions in ``folder`` whose programs are in ``recording``."""
    table = pd.read_csv(recording, dtype={"id": str}, usecols=["id"])
    known = dict(zip(dict.fromkeys(table.id), load(recording), strict=True))
    grader, ids, questions, states = Grader(), list[str](), list[Recorded](), list[np.ndarray]()
    for path in sorted(folder.glob("states-*.npz"), key=lambda path: int(path.stem.partition("-")[2])):
        lines = stored(folder / f"texts-{path.stem.partition('-')[2]}.jsonl")
        block = np.load(path)["states"]
        for name in dict.fromkeys(line["id"] for line in lines):
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


def features(data: Labelled, parts: Sequence[tuple[str, int]]) -> list[np.ndarray]:
    return [data.part(kind, layer) for kind, layer in parts]


@dataclass
class Probe:
    """Principal components of each part, beside further columns, under a logistic regression with a ridge."""

    components: int = COMPONENTS
    strength: float = STRENGTH

    def fit(self, parts: Sequence[np.ndarray], more: np.ndarray, right: np.ndarray) -> Probe:
        count = [min(self.components, *part.shape) for part in parts]
        self.reduce = [
            make_pipeline(StandardScaler(), PCA(n, random_state=0)).fit(part)
            for n, part in zip(count, parts, strict=True)
        ]
        self.model = make_pipeline(StandardScaler(), LogisticRegression(C=self.strength, max_iter=1000))
        self.model.fit(self._columns(parts, more), right)
        return self

    def _columns(self, parts: Sequence[np.ndarray], more: np.ndarray) -> np.ndarray:
        reduced = [step.transform(part) for step, part in zip(self.reduce, parts, strict=True)]
        return np.concatenate([*reduced, more], 1)

    def scores(self, parts: Sequence[np.ndarray], more: np.ndarray) -> np.ndarray:
        return self.model.predict_proba(self._columns(parts, more))[:, 1]


def cross_validated(
    data: Labelled,
    parts: Sequence[np.ndarray],
    more: np.ndarray | None = None,
    *,
    train: int | None = None,
    repeats: int = REPEATS,
    probe: Probe | None = None,
) -> np.ndarray:
    """Each text's score by probes that did not see its question, fitted on at most ``train`` questions."""
    count = len(data.questions)
    more = np.zeros((len(data.right), 0)) if more is None else more
    scores = np.zeros(len(data.right))
    for repeat in range(repeats):
        stream = np.random.default_rng(repeat)
        for fold in np.array_split(stream.permutation(count), 5):
            seen = stream.permutation(np.setdiff1d(np.arange(count), fold))[:train]
            fit, test = np.isin(data.groups, seen), np.isin(data.groups, fold)
            settings = probe or Probe()
            fresh = Probe(settings.components, settings.strength)
            fresh.fit([part[fit] for part in parts], more[fit], data.right[fit])
            scores[test] += fresh.scores([part[test] for part in parts], more[test]) / repeats
    return scores


def figures(data: Labelled, scores: np.ndarray) -> list[str]:
    """AUC over all with its interval by questions, AUC within, and the accuracy of the best-scored text."""
    stream = np.random.default_rng(0)
    by = data.by_question(scores)
    within = within_question_auc(data.questions, by)
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


def votes(data: Labelled, scores: np.ndarray, programs: bool) -> list[bool]:
    """Whether the vote of the texts, each counting its score, with four programs or none, is right."""
    grader, right = Grader(), []
    for question, given in zip(data.questions, data.by_question(scores), strict=True):
        voters = [*question.texts, *(question.programs if programs else ())]
        weights = [max(score, 1e-9) for score in given]
        # A program counts as a text of the mean score.
        weights += [float(np.mean(weights))] * (len(voters) - len(given))
        answer = grader.vote([voter.answer for voter in voters], question.kind, weights)
        right.append(answer is not None and bool(grader.equal(answer, question.gold, question.kind)))
    return right


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recording", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scores", type=Path)
    parser.add_argument("--carry", type=Path, nargs=2, metavar=("RECORDING", "FOLDER"))
    parser.add_argument("--quick", action="store_true", help="two times instead of ten")
    arguments = parser.parse_args(words)
    data = read(arguments.recording, arguments.folder)
    repeats = 2 if arguments.quick else REPEATS
    print(
        f"{len(data.questions)} questions, {len(data.right)} texts, {100 * data.right.mean():.1f} % right\n"
    )
    judges = {
        "mean probability": data.of_texts(probability),
        "votes of the other texts": data.of_texts(others_agree),
        "four programs": data.of_texts(programs_agree),
    }
    together = np.stack(list(judges.values()), 1)
    scored = dict(judges)
    scored["votes + programs"] = judges["votes of the other texts"] + judges["four programs"]
    scored["votes, programs, probability, fitted"] = cross_validated(data, [], together, repeats=repeats)
    for layer, share in enumerate(SHARES):
        for kind in KINDS if layer == 2 else KINDS[:2]:
            name = f"state at {share:.2f} of the depth, {kind}"
            scored[name] = cross_validated(data, [data.part(kind, layer)], repeats=repeats)
    both = [data.part("mean", 2), data.part("last", 2)]
    scored["probe: mean and last, 0.67"] = cross_validated(data, both, repeats=repeats)
    scored["probe + votes"] = cross_validated(data, both, together[:, 1:2], repeats=repeats)
    scored["probe + votes + programs"] = cross_validated(data, both, together[:, 1:], repeats=repeats)
    scored["probe + votes + programs + probability"] = cross_validated(data, both, together, repeats=repeats)
    rows = [[name, *figures(data, scores)] for name, scores in scored.items()]
    print(Table(["judge", "AUC over all", "AUC within a question"], rows).markdown(), "\n")
    rules = [Rules(question) for question in data.questions]
    mixed = [rule.mixed(5, 4, MixedConsistency()) for rule in rules]
    base = [rule.vote(5, 4)[0] for rule in rules]
    tokens = {
        "texts": np.mean([rule.vote(5)[1] for rule in rules]),
        "both": np.mean([rule.vote(5, 4)[1] for rule in rules]),
        "mixed": np.mean([spent for _, spent in mixed]),
    }
    outcomes = {
        "majority of 5 texts": ([rule.vote(5)[0] for rule in rules], tokens["texts"]),
        "`mixed_consistency`, until settled": ([right for right, _ in mixed], tokens["mixed"]),
        "5 texts and 4 programs vote": (base, tokens["both"]),
        "5 texts weighted by the probe": (
            votes(data, scored["probe: mean and last, 0.67"], False),
            tokens["texts"],
        ),
    }
    for name in list(scored)[3:5] + list(scored)[-3:]:
        outcomes[f"5 texts weighted by {name}"] = votes(data, scored[name], False), tokens["both"]
    for name in ["probe: mean and last, 0.67", *list(scored)[-3:]]:
        outcomes[f"the same and 4 programs vote, {name}"] = votes(data, scored[name], True), tokens["both"]
    outcomes["a perfect judge of 5 texts"] = [rule.covered(5)[0] for rule in rules], tokens["texts"]
    lines = [
        [name, f"{100 * np.mean(right):.1f}", minus(right, base), f"{spent:.0f}"]
        for name, (right, spent) in outcomes.items()
    ]
    columns = ["rule", "right %", "minus 5 texts and 4 programs", "tokens"]
    print(Table(columns, lines).markdown(), "\n")
    sizes = [n for n in (25, 50, 100, 200, 300) if n <= 0.8 * len(data.questions)]
    lines = [[str(n), *figures(data, cross_validated(data, both, train=n, repeats=repeats))] for n in sizes]
    print(Table(["questions to learn from", "AUC over all", "AUC within a question"], lines).markdown(), "\n")
    if arguments.carry:
        other = read(*arguments.carry)
        parts = [other.part("mean", 2), other.part("last", 2)]
        none = np.zeros((len(data.right), 0)), np.zeros((len(other.right), 0))
        scores = Probe().fit(both, none[0], data.right).scores(parts, none[1])
        print("carried over:", *figures(other, scores), "\n")
    if arguments.scores:
        write_scores(arguments.scores, data, scored)


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
