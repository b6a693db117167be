"""What the bundled model knows as a solver and as a reviewer.

    python -m experiments.checking --problems 500
    python -m experiments.checking --out experiments/results/checking.md model=./FOLDER

A faithful stand-in for a large model checks better than it solves: with nothing right to read its reviewer
should know no more than greedy decoding, and find a right solution where there is one. Every verifier reads
the same five candidates, sampled at temperature 0.8; validation problems unless the configuration differs.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from experiments.demo.solutions import AUTHORS
from soft_reasoning.configuration.build import build_context, build_dataset, build_engine, build_method
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.reports import tables
from soft_reasoning.reports.tables import Table, percent
from soft_reasoning.rewards.verifiers import Verifier
from soft_reasoning.runs import metrics
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.types import Problem, Request, Result

SHOWN, DRAWN = 5, 25
SOFT = ("embedding=gaussian", "embedding.sigma=2", "decoding=greedy")
READERS = ("multi_generate", "single_generate")
JUDGES = ("multi_judge", "single_judge")
NOTE = """\
In percent, ± one standard error over problems. "Nothing shown" is the verifier's prompt with an empty list.
Coverage: the share of problems on which one of the first 5, or of all 25, samples is right. Balanced
accuracy: the mean of the shares of right candidates called right and of wrong ones called wrong."""


def share(values: Iterable[bool]) -> str:
    """Percent ± its standard error."""
    return tables.share(metrics.share("x", pd.Series(list(values), dtype=float)), "x")


def mean(values: Iterable[float]) -> float | None:
    """Over the values that are known; None where none is."""
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


@dataclass(frozen=True)
class Reading:
    """A method for the scheduler: one verdict on the first SHOWN candidates that are already there."""

    verifier: Verifier
    given: Mapping[str, Result]
    name: str = "reading"

    def solve(self, problem, context):
        candidates = self.given[problem.id].candidates[:SHOWN]
        verdict = yield from self.verifier.verify(problem, candidates, context, ())
        answer = context.grader.vote(verdict.answers, problem.answer_type)
        pairs = zip(candidates, verdict.scores, strict=True)
        return Result(answer, tuple(replace(c, verified=score) for c, score in pairs))


class Measurement:
    """One engine and its problems; each figure is measured through methods and verifiers of the package."""

    def __init__(self, overrides: Sequence[str], problems: int):
        self.base = [f"limit={problems}", "dataset.split=validation", *overrides]
        config = compose_config([*self.base, "method=cot"])
        self.engine, dataset = build_engine(config), build_dataset(config)
        self.context = build_context(config, self.engine)
        self.problems = dataset.problems()

    def results(self, *changes: str) -> dict[str, Result]:
        """What a method gives, by problem id."""
        config = compose_config([*self.base, *changes])
        context = build_context(config, self.engine)
        return {p.id: r for p, r in drive(self.problems, build_method(config), context)}

    def reviews(self, verifier: str, given: Mapping[str, Result]) -> dict[str, Result]:
        """What ``verifier`` answers, and its verdicts on the first SHOWN candidates of each problem."""
        method = build_method(compose_config([*self.base, f"verifier={verifier}"]))
        return {p.id: r for p, r in drive(self.problems, Reading(method.verifier, given), self.context)}

    def right(self, problem: Problem, answer: str | None) -> bool:
        return bool(self.context.grader.correct(answer, problem))

    def solved(self, results: Mapping[str, Result]) -> list[bool]:
        return [self.right(p, results[p.id].answer) for p in self.problems]

    def oks(self, problem: Problem, result: Result) -> list[bool]:
        return [self.right(problem, c.answer) for c in result.candidates]


def by_level(held: Measurement, drawn: Mapping[str, Result], greedy: Mapping[str, Result]) -> str:
    """Base rate, coverage and greedy accuracy by difficulty."""
    groups: dict[str, list[Problem]] = defaultdict(list)
    for problem in held.problems:
        groups[problem.doc["difficulty"]].append(problem)
    rows = []
    for level, chosen in [*groups.items(), ("all", held.problems)]:
        oks = [held.oks(p, drawn[p.id]) for p in chosen]
        rows.append([
            level, str(len(chosen)), percent(mean(sum(o) / len(o) for o in oks)),
            share(any(o[:SHOWN]) for o in oks), share(any(o) for o in oks),
            share(held.right(p, greedy[p.id].answer) for p in chosen),
        ])  # fmt: skip
    columns = ("level", "problems", "base rate", f"coverage of {SHOWN}", f"coverage of {DRAWN}", "greedy")
    return Table(columns, rows).markdown()


def by_opener(held: Measurement) -> str:
    """Greedy accuracy where the first word is given."""
    tokenizer, grader = held.engine.tokenizer, held.context.grader
    rows = []
    for author in AUTHORS:
        word = tuple(tokenizer.encode(author.openers[0], add_special_tokens=False))
        prompts = [held.context.prompts.solve(p).followed_by(word) for p in held.problems]
        texts = held.engine.generate([Request(p.ids, stop=held.context.prompts.stop) for p in prompts])
        answers = [grader.extract(c.text, p.answer_type) for c, p in zip(texts, held.problems, strict=True)]
        right = [held.right(p, a) for p, a in zip(held.problems, answers, strict=True)]
        rows.append([author.openers[0], ", ".join(sorted(author.habits)), share(right)])
    return Table(("first word", "habits", "solved"), rows, labels=2).markdown()


def by_shown(held: Measurement, drawn: Mapping[str, Result]) -> str:
    """What a verifier answers, by how many of the solutions that it read are right."""
    number = {p.id: sum(held.oks(p, drawn[p.id])[:SHOWN]) for p in held.problems}
    groups = {str(n): [p for p in held.problems if number[p.id] == n] for n in range(SHOWN + 1)}
    groups["any"] = [p for p in held.problems if number[p.id]]
    groups["all"] = list(held.problems)
    rows = [["problems", *(str(len(g)) for g in groups.values())]]
    for name in READERS:
        reviews = held.reviews(name, drawn)
        rows.append([name, *(share(held.right(p, reviews[p.id].answer) for p in g) for g in groups.values())])
    return Table(("right among the five", *groups), rows).markdown()


def judged(held: Measurement, drawn: Mapping[str, Result]) -> str:
    """How well the verdicts on single candidates are."""
    rows = []
    for name in (*READERS, *JUDGES):
        reviews = held.reviews(name, drawn)
        pairs = [
            (c.verified >= 0.5, ok)
            for p in held.problems
            for c, ok in zip(reviews[p.id].candidates, held.oks(p, reviews[p.id]), strict=True)
        ]
        right, wrong = mean(s for s, ok in pairs if ok), mean(not s for s, ok in pairs if not ok)
        tokens = sum(r.usage["verifier"].generated_tokens for r in reviews.values() if "verifier" in r.usage)
        both = None if None in (right, wrong) else (right + wrong) / 2
        figures = [percent(x) for x in (right, wrong, both)]
        rows.append([name, *figures, f"{tokens / len(reviews):.0f}"])
    columns = ("verifier", "right called right", "wrong called wrong", "balanced accuracy", "tokens")
    return Table(columns, rows).markdown()


def measure(overrides: Sequence[str], problems: int) -> str:
    """All tables as Markdown."""
    held = Measurement(overrides, problems)
    greedy = held.results("method=cot")
    drawn = held.results("method=self_consistency", f"method.samples={DRAWN}", "method.temperature=0.8")
    alone = held.results("method=verifier_only")
    soft = held.results("method=soft_reasoning", "search.rounds=0", "verifier=none", *SOFT)
    unparsed = [c.answer is None for r in soft.values() for c in r.candidates]
    return "\n\n".join([
        f"Greedy decoding solves {share(held.solved(greedy))} % of {len(held.problems)} problems, the "
        f"reviewer with nothing shown {share(held.solved(alone))} %. Of {len(unparsed)} candidates at "
        f"sigma = 2, {percent(mean(unparsed))} % have no answer.",
        by_level(held, drawn, greedy), by_shown(held, drawn), judged(held, drawn), by_opener(held), NOTE,
    ]) + "\n"  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--out", type=Path, help="write the tables here as well")
    parser.add_argument("overrides", nargs="*", help="configuration, as on the command line of a run")
    args = parser.parse_intermixed_args()
    text = measure(args.overrides, args.problems)
    print(text)
    if args.out:
        command = f"python {sys.argv[0]} --problems {args.problems} {' '.join(args.overrides)}"
        args.out.write_text(f"# Checking and solving\n\n`{command.strip()}`\n\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
