"""Rules replayed on a recording: accuracy, tokens and paired intervals, and how well judges order texts.

    python -m experiments.real_models.replay experiments/results/recordings/NAME.csv

Every rule sees the same texts and programs (``record.py``), the first ones of each kind. "minus the
majority" is the paired difference from the majority of ``--texts`` texts with its 95 % interval over
questions. A judge's AUC is the chance that it prefers a right text to a wrong one of the same question, ties
half, over the questions that have both; +- is a standard error over questions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.real_models.record import GREEDY_TEXT, PROGRAM, TEXT
from soft_reasoning.answers import Grader
from soft_reasoning.reports.statistics import paired_bootstrap
from soft_reasoning.reports.tables import Table


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


@dataclass
class Rules:
    """Rules of one question, each with the answer that it gives and the tokens that it takes."""

    question: Recorded
    grader: Grader = field(default_factory=Grader)

    def same(self, a: Answered, b: Answered) -> bool:
        return a.answer is not None and self.grader.equal(a.answer, b.answer, self.question.kind)

    def vote(self, texts: int, programs: int = 0, weight: float = 1.0) -> tuple[bool, int]:
        """The majority of ``texts`` and ``programs``, a program counting ``weight``; whether it is right."""
        voters = [*self.question.texts[:texts], *self.question.programs[:programs]]
        weights = [1.0] * texts + [weight] * programs
        return self._right([voter.answer for voter in voters], weights), sum(voter.tokens for voter in voters)

    def best(self, judge: Callable[[Recorded, int], float], texts: int, programs: int) -> tuple[bool, int]:
        """The answers of ``texts``, each weighted by its score; whether the best is right."""
        chosen = self.question.texts[:texts]
        scores = [max(judge(self.question, i), 1e-9) for i in range(len(chosen))]
        tokens = sum(text.tokens for text in [*chosen, *self.question.programs[:programs]])
        return self._right([text.answer for text in chosen], scores), tokens

    def _right(self, answers: Sequence[str | None], weights: Sequence[float]) -> bool:
        answer = self.grader.vote(answers, self.question.kind, weights)
        return answer is not None and self.grader.equal(answer, self.question.gold, self.question.kind)


def others_agree(question: Recorded, i: int) -> float:
    """The share of the other texts with the answer of text ``i``."""
    same = Rules(question).same
    return float(np.mean([same(question.texts[i], x) for j, x in enumerate(question.texts) if j != i]))


def programs_agree(question: Recorded, i: int) -> float:
    """The share of the programs that gave an answer and agree with text ``i``; 0 if none did."""
    ran = [program for program in question.programs if program.answer is not None]
    return sum(Rules(question).same(question.texts[i], program) for program in ran) / max(len(ran), 1)


def probability(question: Recorded, i: int) -> float:
    """The geometric mean probability of the tokens of text ``i``."""
    return float(np.exp(question.texts[i].logprob))


def together(question: Recorded, i: int) -> float:
    """Agreement of texts and programs, and half the mean probability."""
    return others_agree(question, i) + programs_agree(question, i) + 0.5 * probability(question, i)


JUDGES = {
    "mean probability of its tokens": probability,
    "share of the other texts that have its answer": others_agree,
    "share of the programs that have its answer": programs_agree,
    "texts + programs": lambda question, i: others_agree(question, i) + programs_agree(question, i),
    "texts + programs + 0.5 mean probability": together,
}


def load(path: Path) -> list[Recorded]:
    """The questions of a recording that have all their texts and programs."""
    table = pd.read_csv(
        path, dtype={"answer": str, "gold": str}, keep_default_na=False, na_values={"answer": [""]}
    )
    counts = table.groupby("id").size()
    questions = []
    for _, rows in table[table.id.isin(counts[counts == counts.max()].index)].groupby("id", sort=False):
        kinds = {
            kind: [
                Answered(
                    None if pd.isna(row.answer) else row.answer, bool(row.right), row.tokens, row.logprob
                )
                for row in part.sort_values("sample").itertuples()
            ]
            for kind, part in rows.groupby("kind")
        }
        first = rows.iloc[0]
        questions.append(
            Recorded(first.type, first.gold, kinds[GREEDY_TEXT][0], kinds[TEXT], kinds.get(PROGRAM, []))
        )
    return questions


def rules_table(questions: Sequence[Recorded], texts: int) -> Table:
    rules = [Rules(question) for question in questions]
    results: dict[str, list[tuple[bool, int]]] = {
        "greedy text (`cot`)": [(q.greedy.right, q.greedy.tokens) for q in questions],
        "one text": [(q.texts[0].right, q.texts[0].tokens) for q in questions],
    }
    for count in range(2, texts + 1):
        results[f"majority of {count} texts (`self_consistency`)"] = [rule.vote(count) for rule in rules]
    programs = min(len(question.programs) for question in questions)
    if programs:
        results["one program (`program`)"] = [rule.vote(0, 1) for rule in rules]
        results[f"majority of {programs} programs (`program_consistency`)"] = [
            r.vote(0, programs) for r in rules
        ]
        for count in range(1, texts + 1):
            name = f"{count} texts and {programs} programs vote (`mixed_consistency`)"
            results[name] = [rule.vote(count, programs, 0.5) for rule in rules]
        name = f"{texts} texts, each weighted by texts + programs + 0.5 mean probability"
        results[name] = [rule.best(together, texts, programs) for rule in rules]
    covered = [(any(text.right for text in q.texts[:texts]), 0) for q in questions]
    results[f"a perfect judge of {texts} texts (coverage)"] = covered
    reference = [float(right) for right, _ in results[f"majority of {texts} texts (`self_consistency`)"]]
    rows = []
    for name, outcomes in results.items():
        right = [float(x) for x, _ in outcomes]
        spent, accuracy = float(np.mean([tokens for _, tokens in outcomes])), 100 * float(np.mean(right))
        interval = paired_bootstrap(right, reference)
        shown = f"{100 * interval.difference:+.1f} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"
        rows.append(
            [name, f"{accuracy:.1f}", shown, f"{spent:.0f}", f"{100 * spent / max(accuracy, 1e-9):.0f}"]
        )
    return Table(["rule", "right %", "minus the majority", "tokens", "tokens per right answer"], rows)


def judges_table(questions: Sequence[Recorded], texts: int) -> Table:
    mixed = [q for q in questions if len({text.right for text in q.texts[:texts]}) == 2]
    rows = []
    for name, judge in JUDGES.items():
        values = []
        for question in mixed:
            scores = {right: [] for right in (True, False)}
            for i, text in enumerate(question.texts[:texts]):
                scores[text.right].append(judge(question, i))
            wins = [(a > b) + 0.5 * (a == b) for a in scores[True] for b in scores[False]]
            values.append(float(np.mean(wins)))
        error = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")
        rows.append([name, f"{np.mean(values):.3f} ± {error:.3f}"])
    return Table(
        ["judge of a text", f"AUC within the {len(mixed)} questions with right and wrong texts"], rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recording", type=Path)
    parser.add_argument("--texts", type=int, default=5)
    arguments = parser.parse_args()
    questions = load(arguments.recording)
    print(f"{len(questions)} questions\n")
    print(rules_table(questions, arguments.texts).markdown(), "\n")
    print(judges_table(questions, arguments.texts).markdown())


if __name__ == "__main__":
    main()
