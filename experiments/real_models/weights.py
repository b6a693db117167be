"""Weights of ``verifier=ensemble``, compared on recordings.

    python -m experiments.real_models.weights RECORDING.csv ... [--all]

Five texts of each question vote, each with its score as weight. All combinations of the weights below are
tried (texts always 1). A part that a recording lacks, such as the model's verdict, is left out there. "AUC"
is the chance that a right text has a higher score than a wrong one of the same question, ties half. "minus"
is the paired difference of the vote from that with the default weights, over the questions of all
recordings, with its 95 % interval. Without ``--all`` the table holds the default, each part alone, and the
ten combinations with the best mean AUC.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np

from experiments.real_models.recording import Recorded, load
from experiments.real_models.rules import Rules, minus, others_agree, probability, within_question_auc
from soft_reasoning.reports.tables import Table
from soft_reasoning.rewards.ensemble import PARTS, Ensemble
from soft_reasoning.rewards.ensemble.verifier import WEIGHTS, saturating

VERDICT = "probability"
VALUES = {
    "texts": (1.0,),
    "programs": (0.0, 0.5, 1.0, 2.0, 4.0),
    "verdict": (0.0, 0.25, 0.5, 1.0),
    "coherence": (0.0, 0.25, 0.5, 1.0),
}
REPEATS = (0.0, 0.5, 1.0)


@dataclass(frozen=True)
class Weights:
    """The weight of each of ``PARTS``, and that of a further program that agrees."""

    parts: tuple[float, ...]
    repeat: float

    @cached_property
    def verifier(self) -> Ensemble:
        """The verifier with these weights."""
        texts, programs, verdict, coherence = self.parts
        return Ensemble(
            texts_weight=texts,
            programs_weight=programs,
            verdict_weight=verdict,
            coherence_weight=coherence,
            repeat_weight=self.repeat,
        )


DEFAULT = Weights(tuple(WEIGHTS[part] for part in PARTS), Ensemble().repeat_weight)
ALONE = [Weights(tuple(float(part == only) for part in PARTS), DEFAULT.repeat) for only in PARTS]
GRID = [Weights(parts, repeat) for parts in product(*(VALUES[p] for p in PARTS)) for repeat in REPEATS]


class Judged:
    """A question whose texts any weights can score."""

    def __init__(self, question: Recorded, texts: int) -> None:
        self.question, self.texts, self.rules = question, question.texts[:texts], Rules(question)
        ran = [program for program in question.programs if program.answer is not None]
        self.ran = len(ran)
        self.agreeing = [sum(self.rules.same(text, program) for program in ran) for text in self.texts]
        self.values = [
            {"texts": others_agree(question, i), "coherence": probability(question, i)}
            for i in range(len(self.texts))
        ]
        for values, verdict in zip(self.values, question.scores.get(VERDICT, ()), strict=False):
            values["verdict"] = verdict

    def scores(self, weights: Weights) -> list[float]:
        """The score of each text."""
        verifier, most, scores = weights.verifier, saturating(self.ran, weights.repeat), list[float]()
        for text, values, count in zip(self.texts, self.values, self.agreeing, strict=True):
            if self.ran:
                values = values | {"programs": saturating(count, weights.repeat) / most}
            known = {part: value for part, value in values.items() if part in verifier.weights}
            scores.append(verifier.score(text.answer, known) or 0.0)
        return scores

    def right(self, scores: Sequence[float]) -> bool:
        """Whether the texts' vote, weighted by ``scores``, is right."""
        return self.rules.best(lambda _, i: scores[i], len(self.texts), 0)[0]


def table(recordings: Mapping[str, Sequence[Recorded]], texts: int, every: bool) -> Table:
    """The combinations of weights with their accuracies, the best mean AUC first."""
    judged = {name: [Judged(q, texts) for q in questions] for name, questions in recordings.items()}
    votes, aucs = dict[Weights, list[list[float]]](), dict[Weights, float]()
    for weights in dict.fromkeys([DEFAULT, *ALONE, *GRID]):
        scores = [[question.scores(weights) for question in questions] for questions in judged.values()]
        votes[weights] = [
            [float(question.right(s)) for question, s in zip(questions, part, strict=True)]
            for questions, part in zip(judged.values(), scores, strict=True)
        ]
        aucs[weights] = float(
            np.mean(
                [
                    np.mean(within_question_auc(questions, part))
                    for questions, part in zip(recordings.values(), scores, strict=True)
                ]
            )
        )
    best = sorted(votes, key=lambda weights: -aucs[weights])
    rows = []
    for weights in best:
        if not (every or weights in (*best[:10], DEFAULT, *ALONE)):
            continue
        accuracies = [100 * float(np.mean(part)) for part in votes[weights]]
        joined, base = ([right for part in votes[w] for right in part] for w in (weights, DEFAULT))
        name = f"{', '.join(f'{weight:g}' for weight in weights.parts)}; {weights.repeat:g}"
        figures = [f"{aucs[weights]:.3f}", *(f"{x:.1f}" for x in accuracies), f"{np.mean(accuracies):.1f}"]
        name, difference = (f"**{name}**", "") if weights == DEFAULT else (name, minus(joined, base))
        rows.append([name, *figures, difference])
    columns = [f"{', '.join(PARTS)}; repeat", "AUC", *(f"{name} %" for name in recordings)]
    return Table([*columns, "mean %", "minus the default"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("--texts", type=int, default=5)
    parser.add_argument("--all", action="store_true", help="show every combination")
    arguments = parser.parse_args()
    recordings = {path.stem: load(path, arguments.texts) for path in arguments.recordings}
    print(table(recordings, arguments.texts, arguments.all).markdown())


if __name__ == "__main__":
    main()
