"""Every verifier on the same first-round candidates: python experiments/verifier_accuracy.py [--problems 200]

    python experiments/verifier_accuracy.py --out experiments/results/verifiers.md
    python experiments/verifier_accuracy.py --problems 50 model=llama3_8b dataset=gsm8k

It uses the bundled model and validation problems unless configured otherwise. The candidates are those of
Soft Reasoning's first round, drawn once. Each verifier judges the same candidates.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from soft_reasoning.answers import Grader
from soft_reasoning.configuration.build import (
    build_context,
    build_dataset,
    build_engine,
    build_method,
    check_lengths,
)
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.engines.base import PreparedRequest
from soft_reasoning.engines.queue import QueueEngine
from soft_reasoning.reports.tables import Table
from soft_reasoning.rewards.combine import Reward
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.verifiers import Verdict, Verifier
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.types import Candidate, Completion, Problem, Request, Result

FIVE = ("verifier.samples=5", "verifier.temperature=0.7")
VERIFIERS: dict[str, tuple[str, ...]] = {
    "multi_generate": (),
    "multi_generate, answers alone": ("verifier.show=answer",),
    "multi_generate, answers alone, 5 samples": ("verifier.show=answer", *FIVE),
    "multi_generate, mean_prob": ("verifier.confidence=mean_prob",),
    "multi_generate, sequence_prob": ("verifier.confidence=sequence_prob",),
    "multi_generate, 5 samples": FIVE,
    "multi_generate, 5 samples, mean_prob": (*FIVE, "verifier.confidence=mean_prob"),
    "multi_generate, 5 samples, sequence_prob": (*FIVE, "verifier.confidence=sequence_prob"),
    "single_generate": (),
    "single_generate, answers alone": ("verifier.show=answer",),
    "single_generate, mean_prob": ("verifier.confidence=mean_prob",),
    "single_generate, sequence_prob": ("verifier.confidence=sequence_prob",),
    "multi_judge": (),
    "multi_judge, 5 samples": FIVE,
    "single_judge": (),
    "fresh": (),
    "fresh, 5 samples": FIVE,
    "oracle": (),
    "none": (),
}
NOTE = """\
Accuracy and balanced accuracy are over all candidates (a score of 0.5 and more calls a candidate right). AUC
is the chance that a right candidate's score exceeds a wrong one's of the same problem, ties counting half,
mean over the problems that have both; it needs no threshold. "Own answer" is the vote of the answers that a
verifier wrote, weighted by its confidence; a judge writes none, and then it is the answer of the candidate of
the highest reward. "Contested" are the problems where the candidates' majority is wrong and one of them
right. "Vote" is the final answer that one round gives: a vote over candidates and verifier. All in percent,
± one standard error over problems. "fresh" does not see the candidates, "none" judges by coherence alone."""


class Remembering(QueueEngine):
    """Generates a request once: verifiers that differ in how they weigh what was written share it."""

    def __init__(self, engine):
        super().__init__()
        self._engine = engine
        self._known: dict[tuple, Completion] = {}

    def check(self, request: Request) -> PreparedRequest:
        return self._engine.check(request)

    def advance(self) -> list[tuple[int, Completion]]:
        requests = {ticket: prepared.request for ticket, prepared in self.queued.items()}
        keys = {ticket: _key(request) for ticket, request in requests.items()}
        new = {
            keys[ticket]: request for ticket, request in requests.items() if keys[ticket] not in self._known
        }
        self._known.update(zip(new, self._engine.generate(list(new.values())), strict=True))
        return [(ticket, self._known[key]) for ticket, key in keys.items()]


def _key(request: Request) -> tuple:
    seed = request.seed if request.sampling.temperature else 0
    return request.prompt_ids, request.sampling, seed, request.next_logits


@dataclass(frozen=True)
class Review:
    """A method for the scheduler: one verdict on candidates that are already there, by problem id."""

    verifier: Verifier
    reward: Reward
    given: Mapping[str, Sequence[Candidate]]
    name: str = "review"

    def solve(self, problem, context):
        candidates = self.given[problem.id]
        verdict = yield from self.verifier.verify(problem, candidates, context, stage="round-0")
        judged = tuple(
            replace(c, verified=score, reward=self.reward(score, c.coherence))
            for c, score in zip(candidates, verdict.scores, strict=True)
        )
        return Result(own_answer(judged, verdict, problem, context.grader), judged, ({"verdict": verdict},))


def own_answer(judged: Sequence[Candidate], verdict: Verdict, problem: Problem, grader: Grader) -> str | None:
    if verdict.answers:
        return grader.vote(verdict.answers, problem.answer_type, weights=verdict.weights)
    return FinalAnswer("best_reward").choose(judged, [verdict], grader, problem.answer_type)


def contested(problem: Problem, candidates: Sequence[Candidate], grader: Grader) -> bool:
    """Whether the candidates' majority is wrong and one of them right."""
    majority = grader.vote([c.answer for c in candidates], problem.answer_type)
    return not grader.correct(majority, problem) and any(
        grader.correct(c.answer, problem) for c in candidates
    )


def auc(scores: Sequence[float], right: Sequence[bool]) -> float:
    """The chance that a right one's score exceeds a wrong one's, ties half; NaN where either is missing."""
    above = [s for s, r in zip(scores, right, strict=True) if r]
    below = [s for s, r in zip(scores, right, strict=True) if not r]
    wins = sum((a > b) + 0.5 * (a == b) for a in above for b in below)
    return wins / (len(above) * len(below)) if above and below else math.nan


def share(values: Iterable[bool]) -> str:
    """Percent ± its standard error."""
    values = [bool(v) for v in values]
    if not values:
        return "-"
    p = sum(values) / len(values)
    error = math.sqrt(p * (1 - p) / max(1, len(values) - 1))
    return f"{100 * p:.1f} ± {100 * error:.1f}"


def mean(values: Iterable[float]) -> float:
    """Over the values that are known; NaN where none is."""
    known = [v for v in values if not math.isnan(v)]
    return sum(known) / len(known) if known else math.nan


def percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f}"


def row(results: Sequence[tuple[Problem, Result]], grader: Grader) -> list[str]:
    """What the table says of one verifier."""
    right = [[bool(grader.correct(c.answer, p)) for c in r.candidates] for p, r in results]
    scores = [[c.coherence if c.verified is None else c.verified for c in r.candidates] for _, r in results]
    verdicts = [
        (c.verified >= 0.5, ok)
        for (_, r), oks in zip(results, right, strict=True)
        for c, ok in zip(r.candidates, oks, strict=True)
        if c.verified is not None
    ]
    of_right, of_wrong = mean(s for s, ok in verdicts if ok), mean(not s for s, ok in verdicts if not ok)
    own = [(p, r, bool(grader.correct(r.answer, p))) for p, r in results]
    votes = [
        FinalAnswer("vote").choose(r.candidates, [r.trace[0]["verdict"]], grader, p.answer_type)
        for p, r in results
    ]
    generated = sum(r.usage["verifier"].generated_tokens for _, r in results if "verifier" in r.usage)
    return [
        percent(mean(said == ok for said, ok in verdicts)),
        percent((of_right + of_wrong) / 2),
        percent(mean(auc(s, r) for s, r in zip(scores, right, strict=True))),
        percent(mean(said for said, _ in verdicts)),
        share(ok for *_, ok in own),
        share(ok for p, r, ok in own if contested(p, r.candidates, grader)),
        share(grader.correct(v, p) for v, (p, _) in zip(votes, results, strict=True)),
        f"{generated / len(results):.0f}",
    ]


COLUMNS = ("verifier", "accuracy", "balanced", "AUC", "called right", "own answer", "own, contested", "vote",
           "tokens")  # fmt: skip


def measure(overrides: Sequence[str], problems: int, verifiers: Mapping[str, tuple[str, ...]]) -> str:
    """The table and what it was made of, as Markdown."""
    base = [f"limit={problems}", *overrides]
    if not any(o.startswith("dataset") for o in overrides):
        base.append("dataset.split=validation")
    config = compose_config([*base, "verifier=none", "search.rounds=0"])
    engine, dataset = build_engine(config), build_dataset(config)
    context = build_context(config, engine, dataset.exemplars())
    chosen = dataset.problems()
    check_lengths(chosen, context)
    grader = context.grader
    first = {p.id: r.candidates for p, r in drive(chosen, build_method(config), context)}
    judged = [(p, first[p.id]) for p in chosen]
    rows, remembering = [], Remembering(engine)
    for label, changes in verifiers.items():
        name = label.partition(",")[0]
        method = build_method(compose_config([*base, f"verifier={name}", *changes]))
        review = Review(method.verifier, method.reward, first)
        results = dict((p.id, (p, r)) for p, r in drive(chosen, review, context, engine=remembering))
        rows.append([label, *row([results[p.id] for p in chosen], grader)])
        print(" | ".join(rows[-1]), flush=True)
    right = [bool(grader.correct(c.answer, p)) for p, cs in judged for c in cs]
    majority = [grader.correct(grader.vote([c.answer for c in cs], p.answer_type), p) for p, cs in judged]
    covered = [any(grader.correct(c.answer, p) for c in cs) for p, cs in judged]
    counts = (
        f"{len(judged)} problems, {len(right)} candidates, {percent(mean(right))} % of them right (the base "
        f"rate). The candidates' majority is right on {share(majority)} % of the problems, a candidate on "
        f"{share(covered)} %; {sum(contested(p, cs, grader) for p, cs in judged)} problems are contested."
    )
    return f"{counts}\n\n{Table(COLUMNS, rows).markdown()}\n\n{NOTE}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--out", type=Path, help="write the table here as well")
    parser.add_argument("--verifiers", nargs="+", choices=VERIFIERS, default=list(VERIFIERS), metavar="NAME")
    parser.add_argument("overrides", nargs="*", help="configuration, as on the command line of a run")
    args = parser.parse_args()
    text = measure(args.overrides, args.problems, {name: VERIFIERS[name] for name in args.verifiers})
    print(f"\n{text}")
    if args.out:
        command = (
            f"python experiments/verifier_accuracy.py --problems {args.problems} {' '.join(args.overrides)}"
        )
        args.out.write_text(f"# Verifiers\n\n`{command.strip()}`\n\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
