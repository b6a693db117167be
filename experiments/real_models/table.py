"""All recordings in one table for each model: every rule against texts alone and programs alone.

    python -m experiments.real_models.table [RECORDING.csv ...]

Without files, those of ``experiments/results/recordings`` for the models below, named MODEL_DATASET.csv.
"minus texts" is the paired difference, with its 95 % interval, from the majority of the fewest sampled texts
that take at least the rule's tokens, or of all recorded texts if even they take fewer; their number is in
brackets. "minus programs" is the same for programs. So each rule is compared with its tokens spent on one
kind of text.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.real_models.replay import Recorded, Rules, load, minus, outcomes
from soft_reasoning.reports.tables import Table

RECORDINGS = Path(__file__).parents[1] / "results" / "recordings"
MODELS = ("qwen25_coder_1_5b", "qwen25_coder_0_5b")
COLUMNS = ["data, questions", "rule", "right %", "minus texts", "minus programs", "tokens"]
COLUMNS += ["tokens per right answer"]

Outcomes = Sequence[tuple[bool, int]]


def majorities(questions: Sequence[Recorded], programs: bool) -> dict[int, Outcomes]:
    """The majority of the first n texts, or programs, for every n that all questions have."""
    if programs:
        pools = [[*question.programs, *question.further_programs] for question in questions]
    else:
        pools = [list(question.texts) for question in questions]
    rules = [
        Rules(Recorded(question.kind, question.gold, question.greedy, pool, ()))
        for question, pool in zip(questions, pools, strict=True)
    ]
    return {n: [rule.vote(n) for rule in rules] for n in range(1, min(map(len, pools)) + 1)}


def tokens(outcome: Outcomes) -> float:
    """The mean tokens of a question."""
    return float(np.mean([spent for _, spent in outcome]))


def difference(outcome: Outcomes, controls: Mapping[int, Outcomes]) -> str:
    """The paired difference from the control with as many tokens, and how many texts that has."""
    if not controls:
        return ""
    enough = [n for n, control in controls.items() if tokens(control) >= tokens(outcome)]
    count = min(enough, default=max(controls))
    right, other = ([float(right) for right, _ in answers] for answers in (outcome, controls[count]))
    return f"{minus(right, other)} [{count}]"


def shown(rule: str, texts: int) -> bool:
    """Whether the table has the rule: votes of fewer texts than were recorded are its controls."""
    few = [f"majority of {n} texts" for n in range(2, texts) if n != 5]
    few += [f"{n} texts and" for n in range(1, texts)]
    return rule != "one text" and not rule.startswith(tuple(few))


def rows(name: str, questions: Sequence[Recorded]) -> list[list[str]]:
    """The rules on one recording."""
    texts = len(questions[0].texts)
    controls = {"text": majorities(questions, False), "program": majorities(questions, True)}
    lines: list[list[str]] = []
    for rule, outcome in outcomes(questions, texts).items():
        if shown(rule, texts):
            accuracy, spent = 100 * sum(right for right, _ in outcome) / len(outcome), tokens(outcome)
            itself = rule.split(" (")[0].removesuffix("s") if rule.startswith(("majority", "one")) else ""
            compared = [
                "" if itself.endswith(kind) or rule.startswith("a perfect") else difference(outcome, control)
                for kind, control in controls.items()
            ]
            each = f"{100 * spent / max(accuracy, 1e-9):,.0f}"
            first = f"{name}, {len(questions)}" if not lines else ""
            lines.append([first, rule, f"{accuracy:.1f}", *compared, f"{spent:,.0f}", each])
    return lines


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recordings", nargs="*", type=Path)
    parser.add_argument("--texts", type=int, default=5, help="texts of a question, which all questions have")
    arguments = parser.parse_args(words)
    paths = arguments.recordings or [path for m in MODELS for path in sorted(RECORDINGS.glob(f"{m}_*.csv"))]
    names = {path: next((m for m in MODELS if path.stem.startswith(m)), "") for path in paths}
    for model in dict.fromkeys(names.values()):
        lines: list[list[str]] = []
        for path in (path for path in paths if names[path] == model):
            if questions := load(path, arguments.texts):
                lines += rows(path.stem.removeprefix(f"{model}_"), questions)
        print(f"{model}\n\n{Table(COLUMNS, lines).markdown()}\n")


if __name__ == "__main__":
    main()
