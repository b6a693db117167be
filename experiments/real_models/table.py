"""All recordings in one table for each model: every rule against texts alone and programs alone.

    python -m experiments.real_models.table [RECORDING.csv ...]

Without files, those of ``experiments/results/recordings`` for the models below, named MODEL_DATASET.csv.
"minus texts" is the paired difference, with its 95 % interval, from the majority of the fewest sampled texts
that take at least the rule's tokens, or of all recorded texts if even they take fewer; their number is in
brackets. "minus programs" is the same for programs. So each rule is compared with its tokens spent on one
kind of text. Where only some questions have more texts or programs, a verifier's scores, or answers of runs,
the rules that need them follow on these questions, beside the rules of ``BESIDE``.
"""

from __future__ import annotations

import argparse
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

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
    minus,
    mixtures,
    searches,
    tokens,
    tokens_per_right,
)
from soft_reasoning.lab.reports.tables import Table

RECORDINGS = Path(__file__).parents[1] / "results" / "recordings"
MODELS = ("qwen25_coder_1_5b", "qwen25_coder_0_5b")
BESIDE = (
    majority(5, "texts"),
    majority(4, "programs"),
    MIXED.format(0.85),
    JUDGED.format(5, "program"),
)
COLUMNS = ["data, questions", "rule", "right %", "minus texts", "minus programs", "tokens"]
COLUMNS += ["tokens per right answer"]


def difference(outcomes: Outcomes, controls: Mapping[int, Outcomes]) -> str:
    """The paired difference from the control with as many tokens, and how many texts that has."""
    if not controls:
        return ""
    enough = [n for n, control in controls.items() if tokens(control) >= tokens(outcomes)]
    count = min(enough, default=max(controls))
    return f"{minus(hits(outcomes), hits(controls[count]))} [{count}]"


def rows(name: str, questions: Sequence[Recorded], texts: int, known: Container[str] = ()) -> list[list[str]]:
    """The rules on one recording but the ``known`` ones; a majority is compared with the other kind alone."""
    of_texts, of_programs = majorities(questions)
    none: dict[int, Outcomes] = {}
    compared = [("greedy text (`cot`)", greedy(questions), of_texts, of_programs)]
    for count in sorted({texts, max(of_texts)}):
        compared.append((majority(count, "texts"), of_texts[count], none, of_programs))
    for count in sorted({1, 4, max(of_programs, default=1)} & {*of_programs}):
        compared.append((majority(count, "programs"), of_programs[count], of_texts, none))
    runs = {f"run: {run}": outcomes for run, outcomes in searches(questions).items()}
    others = mixtures(questions, texts) | runs
    compared += [(rule, outcomes, of_texts, of_programs) for rule, outcomes in others.items()]
    covered = coverage(questions, texts)
    compared.append((f"a perfect judge of {texts} texts (coverage)", covered, none, none))
    lines: list[list[str]] = []
    for rule, outcomes, text_controls, program_controls in compared:
        if rule in known:
            continue
        first = "" if lines else f"{name}, {len(questions)}"
        differences = difference(outcomes, text_controls), difference(outcomes, program_controls)
        each = f"{tokens_per_right(outcomes):,.0f}"
        line = [first, rule, f"{accuracy(outcomes):.1f}", *differences, f"{tokens(outcomes):,.0f}", each]
        lines.append(line)
    return lines


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
    parser.add_argument("--texts", type=int, default=5, help="texts of a question, which all questions have")
    arguments = parser.parse_args(words)
    paths = arguments.recordings or [path for m in MODELS for path in sorted(RECORDINGS.glob(f"{m}_*.csv"))]
    names = {path: next((m for m in MODELS if path.stem.startswith(m)), "") for path in paths}
    for model in dict.fromkeys(names.values()):
        lines: list[list[str]] = []
        for path in (path for path in paths if names[path] == model):
            known: set[str] = set()
            for part in parts(load(path, arguments.texts)):
                new = rows(path.stem.removeprefix(f"{model}_"), part, arguments.texts, known)
                known |= {line[1] for line in new}.difference(BESIDE)
                lines += new
        print(f"{model}\n\n{Table(COLUMNS, lines).markdown()}\n")


if __name__ == "__main__":
    main()
