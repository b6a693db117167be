"""How well the bundled model solves and reviews.

    python -m experiments.checking --problems 500
    python -m experiments.checking --out experiments/results/checking.md model=./FOLDER

A faithful stand-in for a large model checks better than it solves: without a right solution to read, its
reviewer should do no better than greedy decoding, and it should find a right solution if there is one. Every
verifier reads the same five candidates, sampled at temperature 0.8, of validation problems by default.
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
from soft_reasoning.rewards.verifiers import Verifier, verify
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
    """The mean of the values that are not None; None without such values."""
    numbers = [v for v in values if v is not None]
    return sum(numbers) / len(numbers) if numbers else None


@dataclass(frozen=True)
class Reading:
    """A method for the scheduler: a verdict on the first SHOWN candidates of earlier results."""

    verifier: Verifier
    earlier: Mapping[str, Result]
    name: str = "reading"

    def solve(self, problem, context):
        candidates = self.earlier[problem.id].candidates[:SHOWN]
        verdict = yield from verify(self.verifier, problem, candidates, context, ())
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
        """The results of a method, by problem id."""
        config = compose_config([*self.base, *changes])
        context = build_context(config, self.engine)
        return {p.id: r for p, r in drive(self.problems, build_method(config), context)}

    def reviews(self, verifier: str, earlier: Mapping[str, Result]) -> dict[str, Result]:
        """The answers of ``verifier``, and its verdicts on the first SHOWN candidates of each problem."""
        method = build_method(compose_config([*self.base, f"verifier={verifier}"]))
        return {p.id: r for p, r in drive(self.problems, Reading(method.verifier, earlier), self.context)}

    def right(self, problem: Problem, answer: str | None) -> bool:
        return bool(self.context.grader.correct(answer, problem))

    def solved(self, results: Mapping[str, Result]) -> list[bool]:
        return [self.right(p, results[p.id].answer) for p in self.problems]

    def oks(self, problem: Problem, result: Result) -> list[bool]:
        return [self.right(problem, c.answer) for c in result.candidates]


def by_level(study: Measurement, drawn: Mapping[str, Result], greedy: Mapping[str, Result]) -> str:
    """Base rate, coverage and greedy accuracy by difficulty."""
    groups: dict[str, list[Problem]] = defaultdict(list)
    for problem in study.problems:
        groups[problem.doc["difficulty"]].append(problem)
    rows = []
    for level, chosen in [*groups.items(), ("all", study.problems)]:
        oks = [study.oks(p, drawn[p.id]) for p in chosen]
        rows.append(
            [
                level,
                str(len(chosen)),
                percent(mean(sum(o) / len(o) for o in oks)),
                share(any(o[:SHOWN]) for o in oks),
                share(any(o) for o in oks),
                share(study.right(p, greedy[p.id].answer) for p in chosen),
            ]
        )
    columns = ("level", "problems", "base rate", f"coverage of {SHOWN}", f"coverage of {DRAWN}", "greedy")
    return Table(columns, rows).markdown()


def by_opener(study: Measurement) -> str:
    """Greedy accuracy after a fixed first word."""
    tokenizer, grader = study.engine.tokenizer, study.context.grader
    rows = []
    for author in AUTHORS:
        word = tuple(tokenizer.encode(author.openers[0], add_special_tokens=False))
        prompts = [study.context.prompts.solve(p).ids + word for p in study.problems]
        texts = study.engine.generate([Request(ids, stop=study.context.prompts.stop) for ids in prompts])
        answers = [grader.extract(c.text, p.answer_type) for c, p in zip(texts, study.problems, strict=True)]
        right = [study.right(p, a) for p, a in zip(study.problems, answers, strict=True)]
        rows.append([author.openers[0], ", ".join(sorted(author.habits)), share(right)])
    return Table(("first word", "habits", "solved"), rows, labels=2).markdown()


def by_shown(study: Measurement, drawn: Mapping[str, Result]) -> str:
    """The accuracy of a verifier's answer, by the number of right solutions that it read."""
    number = {p.id: sum(study.oks(p, drawn[p.id])[:SHOWN]) for p in study.problems}
    groups = {str(n): [p for p in study.problems if number[p.id] == n] for n in range(SHOWN + 1)}
    groups["any"] = [p for p in study.problems if number[p.id]]
    groups["all"] = list(study.problems)
    rows = [["problems", *(str(len(g)) for g in groups.values())]]
    for name in READERS:
        reviews = study.reviews(name, drawn)
        right = {p.id: study.right(p, reviews[p.id].answer) for p in study.problems}
        rows.append([name, *(share(right[p.id] for p in group) for group in groups.values())])
    return Table(("right among the five", *groups), rows).markdown()


def judged(study: Measurement, drawn: Mapping[str, Result]) -> str:
    """The accuracy of verdicts on single candidates."""
    rows = []
    for name in (*READERS, *JUDGES):
        reviews = study.reviews(name, drawn)
        pairs = [
            (c.verified >= 0.5, ok)
            for p in study.problems
            for c, ok in zip(reviews[p.id].candidates, study.oks(p, reviews[p.id]), strict=True)
        ]
        right, wrong = mean(s for s, ok in pairs if ok), mean(not s for s, ok in pairs if not ok)
        tokens = sum(r.usage["verifier"].generated_tokens for r in reviews.values() if "verifier" in r.usage)
        balanced = None if None in (right, wrong) else (right + wrong) / 2
        figures = [percent(x) for x in (right, wrong, balanced)]
        rows.append([name, *figures, f"{tokens / len(reviews):.0f}"])
    columns = ("verifier", "right called right", "wrong called wrong", "balanced accuracy", "tokens")
    return Table(columns, rows).markdown()


def measure(overrides: Sequence[str], problems: int) -> str:
    """All tables as Markdown."""
    study = Measurement(overrides, problems)
    greedy = study.results("method=cot")
    drawn = study.results("method=self_consistency", f"method.samples={DRAWN}", "method.temperature=0.8")
    alone = study.results("method=verifier_only")
    soft = study.results("method=soft_reasoning", "search.rounds=0", "verifier=none", *SOFT)
    unparsed = [c.answer is None for r in soft.values() for c in r.candidates]
    first = (
        f"Greedy decoding solves {share(study.solved(greedy))} % of {len(study.problems)} problems, the "
        f"reviewer with nothing shown {share(study.solved(alone))} %. Of {len(unparsed)} candidates at "
        f"sigma = 2, {percent(mean(unparsed))} % have no answer."
    )
    tables = (by_level(study, drawn, greedy), by_shown(study, drawn), judged(study, drawn), by_opener(study))
    return "\n\n".join([first, *tables, NOTE]) + "\n"


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
