"""Labels what outputs of models commit to, and scores readers on the labels.

    python -m experiments.reading label OUTPUTS.jsonl LABELS.jsonl
    python -m experiments.reading score OUTPUTS.jsonl ... --labels LABELS.jsonl

An output is a line of JSON with ``model``, ``question``, ``options`` (a list, or null), ``answer_type`` and
``text``. ``label`` shows each text without a label and asks for the value that it commits to: ``none`` if it
commits to none, ``cut`` if it breaks off before. It does not show what any reader makes of the text. Texts of
models and benchmarks stay outside of the repository; ``results/reading.md`` holds counts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import string
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from soft_reasoning.answers import AnswerGrader, Grader, LmEvalGrader, MathVerifyGrader, equal

NOTHING = ("none", "cut")
READERS: dict[str, AnswerGrader] = {
    "this package": Grader(),
    "this package, strict": Grader(extraction="strict"),
    "Math-Verify": MathVerifyGrader(),
    "lm-eval, last number": LmEvalGrader("flexible-extract"),
    "lm-eval, after ####": LmEvalGrader("strict-match"),
}
OUTCOMES = ("right", "unread", "WRONG", "read, though nothing is meant")


def outputs(*files: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each output with a key of its model, question and text."""
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            held = "\0".join((row["model"], row["question"], row["text"]))
            yield hashlib.sha256(held.encode()).hexdigest()[:16], row


def question_of(row: dict[str, Any]) -> str:
    """The question with its options, as a choice is asked."""
    listed = zip(string.ascii_uppercase, row.get("options") or (), strict=False)
    return "\n".join((row["question"], *(f"({letter}) {text}" for letter, text in listed)))


def stored(labels: Path) -> dict[str, str]:
    """Labels by the keys of their outputs."""
    lines = labels.read_text(encoding="utf-8").splitlines() if labels.exists() else []
    return {row["key"]: row["label"] for row in map(json.loads, lines)}


def label(file: Path, labels: Path) -> None:
    """Ask for the labels that are missing."""
    known = stored(labels)
    for key, row in outputs(file):
        if key in known:
            continue
        print(f"\n{'=' * 80}\n{question_of(row)}\n{'-' * 80}\n{row['text']}\n{'-' * 80}")
        answer = input("commits to (none, cut, empty to leave out, quit): ").strip()
        if answer == "quit":
            return
        if answer:
            with labels.open("a", encoding="utf-8") as out:
                out.write(json.dumps({"key": key, "label": answer}, ensure_ascii=False) + "\n")


def outcome(reader: AnswerGrader, row: dict[str, Any], meant: str) -> str:
    """What became of one output."""
    kind = row["answer_type"]
    read = reader.extract(row["text"], kind, question_of(row), cut=row.get("cut", False))
    if meant in NOTHING:
        return OUTCOMES[3] if read is not None else "rightly unread"
    if read is None:
        return "unread"
    return "right" if reader.equal(read, meant, kind) or equal(read, meant, kind) else "WRONG"


def score(files: list[Path], labels: Path) -> str:
    """A table of right, unread and WRONG by model, type of answer and reader."""
    known, counts = stored(labels), defaultdict[tuple[str, str, str], Counter[str]](Counter)
    for key, row in outputs(*files):
        for name, reader in READERS.items():
            if key in known and reader.supports(row["answer_type"]):
                counts[row["model"], row["answer_type"], name][outcome(reader, row, known[key])] += 1
    lines = [
        f"| model | type | reader | outputs that commit | {' % | '.join(OUTCOMES[:3])} % | {OUTCOMES[3]} |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for place, count in sorted(counts.items()):
        meant = sum(count[name] for name in OUTCOMES[:3])
        shares = [f"{100 * count[name] / max(meant, 1):.1f}" for name in OUTCOMES[:3]]
        nothing = f"{count[OUTCOMES[3]]} of {count.total() - meant}"
        lines.append(f"| {' | '.join((*place, str(meant), *shares, nothing))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    asking = commands.add_parser("label")
    asking.add_argument("file", type=Path)
    asking.add_argument("labels", type=Path)
    scoring = commands.add_parser("score")
    scoring.add_argument("files", type=Path, nargs="+")
    scoring.add_argument("--labels", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "label":
        label(given.file, given.labels)
    else:
        print(score(given.files, given.labels))


if __name__ == "__main__":
    main()
