"""Every verifier, final rule and stopping rule on the same recorded candidates.

    python experiments/verifier_accuracy.py record FOLDER method=verified_sampling decoding.temperature=1.3
    python experiments/verifier_accuracy.py judge FOLDER [--verifier NAME] method=...
    python experiments/verifier_accuracy.py judge FOLDER --by LABEL model=...
    python experiments/verifier_accuracy.py table FOLDER [FOLDER ...] [--stops VERIFIER]

``record`` draws five rounds of five candidates per problem, without stopping, with the model's certainties of
them. ``judge`` lets verifiers, of this model or another, judge them round by round. ``table`` applies rules
to the verdicts and replays stopping without generating. For several folders (seeds) it gives the mean and the
standard deviation over the folders that a verifier judged. Completions are stored in FOLDER: verifiers share
equal ones, and an interrupted command can be continued.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from soft_reasoning.answers import Grader
from soft_reasoning.configuration.build import build_context, build_dataset, build_engine, build_method
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.engines.completions.replay import StoreFile, replaying
from soft_reasoning.reports.tables import Table
from soft_reasoning.rewards.coherence import coherence
from soft_reasoning.rewards.combine import Reward
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.rounds import Rounds
from soft_reasoning.rewards.verifiers import Verdict, Verifier, verify
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.search.stopping import Stopping
from soft_reasoning.types import Candidate, Generate, Problem, Result

FIVE = ("verifier.samples=5", "verifier.temperature=0.7")
SURE = ("verifier.confidence=sequence_prob",)
VERIFIERS: dict[str, tuple[str, ...]] = {
    "single_judge": ("verifier.confidence=none",),
    "single_judge, sequence_prob": SURE,
    "probability": (),
    "multi_generate": (),
    "multi_generate, sequence_prob": SURE,
    "multi_judge": (),
    "single_generate, sequence_prob": SURE,
    "fresh": (),
    "fresh, 5 samples": FIVE,
    "oracle": (),
}
QUICK = tuple(VERIFIERS)[:6]
"""Verifiers that write only a few tokens."""
CERTAINTIES = ("mean_prob", "self_certainty", "group_confidence")
"""The last two take half of the time of recording."""
K = 5
"""Candidates of a round."""
LIVE = 64
"""Problems at a time."""


class Parts:
    """Engine, problems and context of a configuration."""

    def __init__(self, overrides: Sequence[str]) -> None:
        self.config = compose_config(overrides)
        dataset = build_dataset(self.config)
        self.context = build_context(self.config, build_engine(self.config), dataset.exemplars())
        self.problems = dataset.problems()

    def replaying(self, folder: Path) -> AbstractContextManager[None]:
        """While it is open, completions are stored in ``folder`` and not generated again."""
        return replaying(StoreFile.of(str(folder), self.config.cache_gb), self.context.engines)


def lines(path: Path) -> dict[str, Any]:
    """The rows of a file by their problem."""
    if not path.exists():
        return {}
    return {(row := json.loads(line))["id"]: row for line in path.read_text().splitlines()}


def record(folder: Path, overrides: Sequence[str], certainties: Sequence[str] = CERTAINTIES) -> None:
    """Draw the candidates."""
    parts = Parts([*overrides, "verifier=none", "search.stopping.rule=none"])
    path = folder / "candidates.jsonl"
    todo = [p for p in parts.problems if p.id not in lines(path)]

    def draw(kind: str) -> dict[str, Result]:
        method = build_method(parts.config)
        method = replace(method, reward=Reward(coherence=kind))
        return {p.id: result for p, result in drive(todo, method, parts.context, max_live=LIVE)}

    # The mean probability needs no likeliest tokens; the others find each other's completions in the store.
    with parts.replaying(folder):
        drawn = {kind: draw(kind) for kind in certainties[1:] or certainties}
    with path.open("a", encoding="utf-8") as file:
        for problem in todo:
            rows = []
            for alike in zip(*(results[problem.id].candidates for results in drawn.values()), strict=True):
                sure = {kind: c.coherence for kind, c in zip(drawn, alike, strict=True)}
                sure["mean_prob"] = coherence(alike[0])
                rows.append({**alike[0].stored(), "coherence": sure["mean_prob"], **sure})
            facts = {"question": problem.question, "gold": problem.gold, "type": problem.answer_type}
            file.write(json.dumps({"id": problem.id, **facts, "candidates": rows}) + "\n")


@dataclass(frozen=True)
class Judging:
    """A method for the scheduler: verdicts on recorded candidates, round by round."""

    verifier: Verifier
    recorded: Mapping[str, Sequence[Candidate]]
    rounds: int
    name: str = "judging"

    def solve(self, problem, context):
        verdicts: list[Verdict] = []
        rows = []
        recorded = self.recorded[problem.id]
        for number in range(self.rounds):
            candidates = recorded[K * number : K * (number + 1)]
            steps = verify(self.verifier, problem, candidates, context, tuple(verdicts))
            verdict, tokens = yield from count_tokens(steps)
            verdicts.append(verdict)
            rows.append([verdict.scores, verdict.answers, verdict.weights, verdict.agreement, tokens])
        return Result(None, (), tuple({"row": row} for row in rows))


def count_tokens(steps):
    """Run ``steps``, and return their result and the number of tokens generated for it."""
    tokens, answer = 0, None
    while True:
        try:
            effect = steps.send(answer)
        except StopIteration as end:
            return end.value, tokens
        answer = yield effect
        if isinstance(effect, Generate):
            tokens += sum(completion.generated_tokens for completion in answer)


def judge(
    folder: Path, verifiers: Sequence[str], overrides: Sequence[str], rounds: int, by: str = ""
) -> None:
    """Let ``verifiers`` judge the candidates of ``folder``; ``by`` is a label of the overrides' model."""
    parts = Parts(overrides)
    recorded = {key: read(row) for key, row in lines(folder / "candidates.jsonl").items()}
    for name in verifiers:
        path = folder / f"{name}{by and ', by '}{by}.jsonl"
        judged_rows = lines(path)
        todo = [p for p in parts.problems if p.id in recorded and p.id not in judged_rows]
        config = compose_config([*overrides, f"verifier={name.partition(',')[0]}", *VERIFIERS[name]])
        method = Judging(build_method(config).verifier, recorded, rounds)
        with path.open("a", encoding="utf-8") as file, parts.replaying(folder):
            for problem, result in drive(todo, method, parts.context, max_live=LIVE):
                rows = [entry["row"] for entry in result.trace]
                file.write(json.dumps({"id": problem.id, "rounds": rows}) + "\n")
                file.flush()
        print(folder.name, name, len(todo), flush=True)


def read(row: Mapping[str, Any]) -> list[Candidate]:
    """The candidates of a row."""
    keys = ("text", "answer", "round", "coherence", "u", "generated_tokens")
    return [Candidate(**{key: c[key] for key in keys}) for c in row["candidates"]]


@cache
def same(a: str | None, b: str | None, kind: str) -> bool:
    return Grader().equal(a, b, kind)


class CachingGrader(Grader):
    """Compares every pair of answers only once."""

    def equal(self, a: str | None, b: str | None, answer_type: str) -> bool:
        return same(a, b, answer_type)


GRADER = CachingGrader()
RULES_SHOWN = ("vote", "reward_vote", "best_reward")
NEVER = Stopping(rounds=99, rule="none")
BLIND: dict[str, Callable[[random.Random], float]] = {
    "always yes": lambda rng: 1.0,
    "always no": lambda rng: 0.0,
    "at random": lambda rng: float(rng.random() < 0.5),
}
STOPS = (
    ("none", 0.95),
    ("agreement", 0.95),
    *(("settled", confidence) for confidence in (0.7, 0.8, 0.85, 0.95)),
)


class Run:
    """A folder: candidates, and a verifier's verdicts on them (None: no verifier)."""

    def __init__(self, folder: Path, verifier: str | None, kind: str = "mean_prob") -> None:
        rows, verdicts = lines(folder / "candidates.jsonl"), {}
        if verifier in BLIND:
            rng = random.Random(folder.name)
            verdicts = {
                key: [[[BLIND[verifier](rng) for _ in range(K)], (), (), (), 0] for _ in range(5)]
                for key in rows
            }
        elif verifier is not None:
            verdicts = {key: row["rounds"] for key, row in lines(folder / f"{verifier}.jsonl").items()}
        self.problems = {}
        for key, row in rows.items():
            if verifier is None or key in verdicts:
                problem = Problem(key, row["question"], row["gold"], row["type"])
                seen = [
                    replace(c, coherence=recorded[kind])
                    for c, recorded in zip(read(row), row["candidates"], strict=True)
                ]
                blank = [[[None] * K, (), (), (), 0]] * (len(seen) // K)
                self.problems[key] = problem, seen, verdicts.get(key, blank)

    def replay(self, final: FinalAnswer, stopping: Stopping = NEVER) -> list[Row]:
        """Replay the verdicts with the methods' code, problem by problem."""
        rows, context = [], SimpleNamespace(grader=GRADER)
        parts = SimpleNamespace(asked=None, reward=Reward(), final=final, stopping=stopping)
        for problem, seen, recorded in self.problems.values():
            rounds, spent = Rounds(parts, problem, context), 0
            for number, (scores, answers, weights, agreement, tokens) in enumerate(recorded):
                verdict = Verdict(tuple(scores), tuple(answers), (), tuple(weights), tuple(agreement))
                candidates = seen[K * number : K * (number + 1)]
                spent += tokens + sum(c.generated_tokens for c in candidates)
                rounds.add(candidates, verdict)
                if stopping is not NEVER and ended(rounds.end()):
                    break
            rows.append(Row(problem, rounds, final, spent))
        return rows


def ended(steps) -> bool:
    try:
        next(steps)
        steps.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("expected one effect")


class Row:
    """A problem's outcome."""

    def __init__(self, problem: Problem, rounds: Rounds, final: FinalAnswer, tokens: int) -> None:
        self.problem, self.rounds, self.tokens = problem, rounds, tokens
        self.right = self.by(final)
        self.marks = [(c.agreement, bool(GRADER.correct(c.answer, problem))) for c in rounds.candidates]
        self.covered = any(ok for _, ok in self.marks)

    def by(self, final: FinalAnswer) -> bool:
        """Whether the answer of a rule is right."""
        return bool(GRADER.correct(final.choose(self.rounds.history), self.problem))


def approved(rows: Iterable[Row], right: bool) -> float:
    """Percent of the right (or wrong) candidates that the verifier calls right."""
    approvals = [share >= 0.5 for row in rows for share, ok in row.marks if ok == right and share is not None]
    return 100 * statistics.fmean(approvals) if approvals else math.nan


def percent(rows: Sequence[Row], value: Callable[[Row], float]) -> float:
    return 100 * statistics.fmean(value(row) for row in rows) if rows else math.nan


def over(values: Sequence[float]) -> str:
    """Mean ± standard deviation over folders."""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return "-" if any(map(math.isnan, values)) else f"{statistics.fmean(values):.1f}{spread}"


def judged(folder: Path, verifier: str | None) -> bool:
    return verifier is None or verifier in BLIND or (folder / f"{verifier}.jsonl").exists()


def tables(folders: Sequence[Path], stops: Sequence[str] = ()) -> str:
    """The tables: verifiers by rules, stopping, and certainty without verifiers."""
    verifiers = sorted({path.stem for folder in folders for path in folder.glob("*.jsonl")} - {"candidates"})
    rules = {rule: FinalAnswer(rule) for rule in RULES_SHOWN}
    table, ends = [], []
    for name in (None, *BLIND, *verifiers):
        runs = [Run(folder, name) for folder in folders if judged(folder, name)]
        results = [run.replay(FinalAnswer("vote")) for run in runs]
        cells = [over([approved(rows, ok) for rows in results]) for ok in (True, False)]
        spent = statistics.fmean(
            sum(r[4] for r in verdicts) for run in runs for *_, verdicts in run.problems.values()
        )
        scores = [
            over([percent(rows, lambda row, f=rule: row.by(f)) for rows in results])
            for rule in rules.values()
        ]
        count = " + ".join(str(len(run.problems)) for run in runs)
        table.append((name or "none", count, *cells, f"{spent:.0f}", *scores))
        for (rule, final), (stop, sure) in itertools.product(rules.items(), STOPS if name in stops else ()):
            replays = [run.replay(final, Stopping(rounds=4, rule=stop, confidence=sure)) for run in runs]
            ends.append(
                (
                    name,
                    rule,
                    f"{stop} {sure}" if stop == "settled" else stop,
                    over([percent(rows, lambda row: row.right) for rows in replays]),
                    over([percent(rows, lambda row: row.covered and not row.right) for rows in replays]),
                    f"{statistics.fmean(len(r.marks) for rows in replays for r in rows):.1f}",
                    f"{statistics.fmean(r.tokens for rows in replays for r in rows):.0f}",
                )
            )
    sure = []
    filters = (
        FinalAnswer(),
        FinalAnswer("vote", keep=0.5),
        FinalAnswer(keep=0.5),
        FinalAnswer("best_reward"),
    )
    for kind in CERTAINTIES:
        firsts = {f: next(iter(lines(f / "candidates.jsonl").values()))["candidates"][0] for f in folders}
        if runs := [Run(folder, None, kind) for folder, first in firsts.items() if kind in first]:
            right = [[percent(run.replay(f), lambda row: row.right) for run in runs] for f in filters]
            sure.append((kind, *map(over, right)))
    covered = [percent(Run(f, None).replay(FinalAnswer("vote")), lambda row: row.covered) for f in folders]
    heads = ("verifier", "problems", "approves right", "approves wrong", "its tokens", *RULES_SHOWN)
    return "\n\n".join(
        [
            f"Coverage {over(covered)}.",
            Table(heads, table).markdown(),
            Table(
                ("verifier", "final", "stops", "accuracy", "lost by choosing", "candidates", "tokens"), ends
            ).markdown(),
            Table(("certainty", "weight", "filter", "filter and weight", "best"), sure).markdown(),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("record", "judge", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--verifier", action="append", choices=VERIFIERS, metavar="NAME")
    parser.add_argument("--by", default="", help="judge: label of another model that judges")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="record: without likeliest tokens")
    parser.add_argument("--stops", action="append", default=[], help="table: verifier to stop by")
    parser.add_argument("more", nargs="*", help="configuration, as on the command line of a run; or folders")
    args = parser.parse_intermixed_args()
    if args.command == "record":
        record(args.folder, args.more, CERTAINTIES[:1] if args.quick else CERTAINTIES)
    elif args.command == "judge":
        judge(args.folder, args.verifier or QUICK, args.more, args.rounds, args.by)
    else:
        print(tables([args.folder, *map(Path, args.more)], args.stops))


if __name__ == "__main__":
    main()
