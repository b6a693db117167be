"""The command ``compare``: the named methods on the same problems."""

from __future__ import annotations

from collections.abc import Sequence

from soft_reasoning.commands import run
from soft_reasoning.commands.launch import refuse

COMPARE = """\
soft-reasoning compare METHOD METHOD ... [options of soft-reasoning run]

Runs the methods on the same problems with the same prompts, grader and seed, and writes comparison.md.
A method may bring options in quotes: "soft_reasoning preset=paper". budget=equal gives each as
many tokens as soft_reasoning."""


def main(words: Sequence[str]) -> None:
    """Run the command line ``compare``."""
    if not all(word.strip() for word in words):
        refuse("compare: expected methods and key=value, got an empty word; leave it out")
    names = [word for word in words if "=" not in word.split()[0] and not word.startswith(("-", "+", "~"))]
    if not names and {"-h", "--help"} & {*words}:
        print(COMPARE)
        return
    if len(names) < 2:
        methods = " ".join(names) or "none"
        refuse(f"compare: expected two methods or more, got {methods}; name them: compare cot soft_reasoning")
    entries = []
    for name, *changes in map(str.split, names):
        quoted = [f"'{change}'" for change in changes]
        entries.append(f"[{','.join([name, *quoted])}]" if changes else name)
    run.main([f"methods=[{','.join(entries)}]", *(word for word in words if word not in names)])
