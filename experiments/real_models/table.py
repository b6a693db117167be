"""All recordings in one table: every rule against samples alone and programs alone, as a CSV file.

    python -m experiments.real_models.table [--out FILE.csv] [RECORDING.csv ...]

Without files, it reads those of ``experiments/results/recordings`` for the models below, named
MODEL_DATASET.csv. "minus_samples" is the paired difference in points, with its 95 % interval in "_low" and
"_high", from the majority of the fewest samples that take at least the rule's tokens, or of all recorded
samples if even they take fewer; "samples" is their number. "minus_programs" is the same for programs. So each
rule is compared with its tokens spent on one kind of answer. Where only some questions have more samples or
programs, a verifier's scores, or answers of runs, the rules that need them follow on these questions, with
the rules of ``REPEATED``.
"""

from __future__ import annotations

import argparse
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from experiments.real_models.recording import Recorded, load
from experiments.real_models.rules import (
    JUDGED,
    MIXED,
    Outcomes,
    accuracy,
    coverage,
    greedy,
    hits,
    majorities,
    majority,
    mixtures,
    searches,
    tokens,
    tokens_per_right,
)
from soft_reasoning.lab.reports.statistics import paired_bootstrap

Row: TypeAlias = dict[str, str | float]

RESULTS = Path(__file__).parents[1] / "results"
RECORDINGS = RESULTS / "recordings"
MODELS = ("qwen25_coder_1_5b", "qwen25_coder_0_5b")
REPEATED = (
    majority(5, "samples"),
    majority(4, "programs"),
    MIXED.format(0.85),
    JUDGED.format(5, "program"),
)


def difference(outcomes: Outcomes, controls: Mapping[int, Outcomes], kind: str) -> Row:
    """The paired difference from the control with as many tokens, and how many of its ``kind`` that has."""
    if not controls:
        return {}
    enough = [n for n, control in controls.items() if tokens(control) >= tokens(outcomes)]
    count = min(enough, default=max(controls))
    interval = paired_bootstrap(hits(outcomes), hits(controls[count]))
    names = (f"minus_{kind}", f"minus_{kind}_low", f"minus_{kind}_high")
    return {**{name: 100 * x for name, x in zip(names, interval, strict=True)}, kind: count}


def rows(questions: Sequence[Recorded], texts: int, known: Container[str] = ()) -> list[Row]:
    """The rules on one recording but the ``known`` ones; a majority is compared with the other kind alone."""
    of_texts, of_programs = majorities(questions)
    none: dict[int, Outcomes] = {}
    compared = [("greedy (`cot`)", greedy(questions), of_texts, of_programs)]
    for count in sorted({texts, max(of_texts)}):
        compared.append((majority(count, "samples"), of_texts[count], none, of_programs))
    for count in sorted({1, 4, max(of_programs, default=1)} & {*of_programs}):
        compared.append((majority(count, "programs"), of_programs[count], of_texts, none))
    runs = {f"run: {run}": outcomes for run, outcomes in searches(questions).items()}
    others = mixtures(questions, texts) | runs
    compared += [(rule, outcomes, of_texts, of_programs) for rule, outcomes in others.items()]
    covered = coverage(questions, texts)
    compared.append((f"a perfect judge of {texts} samples (coverage)", covered, none, none))
    return [
        {
            "questions": len(questions),
            "rule": rule,
            "accuracy": accuracy(outcomes),
            **difference(outcomes, text_controls, "samples"),
            **difference(outcomes, program_controls, "programs"),
            "tokens": tokens(outcomes),
            "tokens_per_correct_answer": tokens_per_right(outcomes),
        }
        for rule, outcomes, text_controls, program_controls in compared
        if rule not in known
    ]


def parts(questions: Sequence[Recorded]) -> list[list[Recorded]]:
    """All questions, then those of which more is known: each part of them once."""
    texts = max((len(question.further_texts) for question in questions), default=0)
    programs = max((len(question.further_programs) for question in questions), default=0)
    runs = {run for question in questions for run in question.answers}
    verifiers = {name for question in questions for name in question.scores}
    found = [
        list(questions),
        [question for question in questions if len(question.further_texts) == texts],
        [question for question in questions if len(question.further_programs) == programs],
        *([question for question in questions if run in question.answers] for run in sorted(runs)),
        *([question for question in questions if name in question.scores] for name in sorted(verifiers)),
    ]
    different = [part for i, part in enumerate(found) if part and part not in found[:i]]
    return sorted(different, key=len, reverse=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recordings", nargs="*", type=Path)
    parser.add_argument("--samples", type=int, default=5, help="how many samples every question has")
    parser.add_argument("--out", type=Path, default=RESULTS / "real_models" / "rules.csv")
    arguments = parser.parse_args(words)
    paths = arguments.recordings or [path for m in MODELS for path in sorted(RECORDINGS.glob(f"{m}_*.csv"))]
    lines: list[Row] = []
    for path in paths:
        model = next((m for m in MODELS if path.stem.startswith(m)), "")
        names: Row = {"model": model, "data": path.stem.removeprefix(f"{model}_")}
        known: set[str] = set()
        for part in parts(load(path, arguments.samples)):
            new = rows(part, arguments.samples, known)
            known |= {str(line["rule"]) for line in new}.difference(REPEATED)
            lines += [names | line for line in new]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(name for line in lines for name in line))
    table = pd.DataFrame(lines, columns=columns).astype({"samples": "Int64", "programs": "Int64"})
    table.to_csv(arguments.out, index=False, float_format="%.2f")
    print(arguments.out)


if __name__ == "__main__":
    main()
