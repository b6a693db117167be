"""Search rules on recorded pools: every point is completed and judged once, then rules are replay.

    python experiments/pools.py record FOLDER --problems 100 --points 128 [overrides]
    python experiments/pools.py compare FOLDER --rule "search=random" --rule "features=next_token" [overrides]

``record`` completes every point of a question's pool as configured and lets the verifier judge each text
alone (the default), so that a point's verdict does not depend on its round. ``compare`` replays rules
(search, features, surrogate, acquisition, stopping) with the package's optimiser, stopping and final rule.
Differences are paired with the first rule; +- is a standard error over problems. "AUC" is the chance that the
surrogate expected more of a right candidate than of a wrong candidate of the same round, before it saw them;
"new" is the same for two candidates with unseen texts.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.answers import Grader
from soft_reasoning.configuration.build import build_context, build_dataset, build_engine, build_method
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.methods.soft_reasoning import SoftReasoning
from soft_reasoning.reports.tables import Table
from soft_reasoning.rewards.combine import rewards_of
from soft_reasoning.rewards.history import SearchHistory
from soft_reasoning.rewards.verifiers import Oracle, Verdict, verify
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.search import SearchState
from soft_reasoning.space.features import (
    Features,
    LookaheadFeatures,
    NextTokenFeatures,
    PointFeatures,
    SoftTokenFeatures,
)
from soft_reasoning.space.pool import PointPool
from soft_reasoning.types import GREEDY, Candidate, Completion, Generate, Result, generator_for


@dataclass(frozen=True)
class Recorded:
    """A question's pool: points (N, d), soft tokens, looks, judged candidates and their correctness."""

    id: str
    answer_type: str
    points: Tensor
    soft: Tensor
    looks: Sequence[Completion]
    candidates: Sequence[Candidate]
    right: Sequence[bool]


@dataclass(frozen=True)
class Record:
    """A method for the scheduler: completes and judges a pool of points."""

    method: SoftReasoning
    count: int
    folder: Path
    name: str = "record"

    def solve(self, problem, context):
        method = self.method
        space = yield from method.open(problem, context)
        stream = generator_for(context.seed, problem.id, "initial")
        points = torch.randn(self.count, space.dim, dtype=torch.float64, generator=stream)
        soft = space.subspace(points)
        requests = [space.request(x, i) for i, x in enumerate(soft)]
        look = {"max_new_tokens": 0, "stop": (), "sampling": GREEDY, "role": "look"}
        looks = yield Generate([replace(r, next_logits=True, hidden_state=True, **look) for r in requests])
        candidates = yield from space.complete(points)
        first = {c.text: c for c in reversed(candidates)}
        verdict = yield from verify(method.verifier, problem, list(first.values()), context, ())
        verdicts = dict(zip(first, zip(verdict.scores, verdict.agreement, strict=True), strict=True))
        judged = [
            replace(c, verified=s, agreement=a, reward=method.reward(s, c.coherence))
            for c, (s, a) in ((c, verdicts[c.text]) for c in candidates)
        ]
        right = [bool(context.grader.correct(c.answer, problem)) for c in candidates]
        recorded = Recorded(problem.id, problem.answer_type, points, soft, looks, judged, right)
        torch.save(recorded, self.folder / f"{problem.id}.pt")
        return Result(None, ())


def record(folder: Path, problems: int, points: int, overrides: Sequence[str]) -> None:
    """Record the questions that are not in ``folder`` yet."""
    folder.mkdir(parents=True, exist_ok=True)
    config = compose_config([f"limit={problems}", "dataset.split=validation", *overrides])
    dataset = build_dataset(config)
    context = build_context(config, build_engine(config), dataset.exemplars())
    left = [p for p in dataset.problems() if not (folder / f"{p.id}.pt").exists()]
    method = Record(build_method(config), points, folder)
    for number, (problem, _) in enumerate(drive(left, method, context, max_live=8), start=1):
        print(number, problem.id, flush=True)


def build_pool(recorded: Recorded, features: Features, greedy: bool, order: Tensor) -> PointPool:
    """The question's pool as the method builds it."""
    texts = [recorded.candidates[i].token_ids for i in order]
    looks = [recorded.looks[i] for i in order]
    behaviours: list[Any] = list(range(len(order)))
    if isinstance(features, LookaheadFeatures):
        looks = [
            replace(look, token_ids=text[: features.tokens]) for look, text in zip(looks, texts, strict=True)
        ]
        behaviours = [look.token_ids for look in looks] if greedy else behaviours
    if isinstance(features, NextTokenFeatures) and features.top:
        likely = [torch.log_softmax(look.next_logits, -1).topk(features.top) for look in looks]
        looks = [
            replace(look, top_logprobs=((tuple(ids.tolist()), tuple(values.tolist())),))
            for look, (values, ids) in zip(looks, likely, strict=True)
        ]
    if isinstance(features, PointFeatures | SoftTokenFeatures):
        looks = []
    points = recorded.points[order]
    return PointPool.of(points, features.rows(points, recorded.soft[order], looks), behaviours, looks)


def mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else math.nan


def replay(recorded: Recorded, method: SoftReasoning, replicate: int) -> dict[str, float]:
    """The results of a rule on a question."""
    grader, greedy = Grader(), method.decoding == GREEDY
    stream = generator_for(replicate, recorded.id, "order")
    order = torch.randperm(len(recorded.points), generator=stream)[: method.optimiser.pool]
    pool = build_pool(recorded, method.features, greedy, order)
    chosen: list[int] = []
    seen: list[Candidate] = []
    verdicts: list[Verdict] = []
    rewards: list[list[float]] = []
    ranked: list[tuple[int, bool, float]] = []  # round, new texts, whether the right candidate was ahead
    covered = [0.0] * 5
    while True:
        before = pool.points[chosen]
        k = min(method.candidates, pool.unseen(before))
        if not k:
            break
        y = torch.tensor(rewards_of(seen), dtype=torch.float64)
        [proposal] = method.optimiser.propose(
            SearchState(
                pool.features[chosen][None],
                y[None],
                k,
                seed=replicate,
                round=len(rewards),
                keys=[recorded.id],
                features=pool.features[None],
                behaviour=pool.choices(before)[None],
            )
        )
        texts = {c.text for c in seen}
        picks = [int(order[i]) for i in proposal.chosen]
        for a, high in zip(picks, proposal.mean.tolist(), strict=False):
            for b, low in zip(picks, proposal.mean.tolist(), strict=False):
                if recorded.right[a] and not recorded.right[b]:
                    fresh = not {recorded.candidates[a].text, recorded.candidates[b].text} & texts
                    ranked.append((len(rewards), fresh, (high > low) + 0.5 * (high == low)))
        candidates = [replace(recorded.candidates[i], round=len(rewards)) for i in picks]
        if isinstance(method.verifier, Oracle):
            truth = [float(recorded.right[i]) for i in picks]
            candidates = [
                replace(c, verified=score, reward=method.reward(score, c.coherence))
                for c, score in zip(candidates, truth, strict=True)
            ]
        covered[len(rewards) :] = [max(covered[-1], *(recorded.right[i] for i in picks))] * (5 - len(rewards))
        chosen += proposal.chosen
        seen += candidates
        rewards.append(rewards_of(candidates))
        scores, agreed = tuple(c.verified for c in candidates), tuple(c.agreement for c in candidates)
        verdicts.append(Verdict(scores, agreement=agreed))
        votes = SearchHistory(seen, verdicts, grader, recorded.answer_type).approval()
        if method.stopping.reason(rewards, agreement=agreed, scores=scores, votes=votes):
            break
    right = {c.answer: ok for c, ok in zip(recorded.candidates, recorded.right, strict=True)}
    answer = method.final.choose(SearchHistory(seen, verdicts, grader, recorded.answer_type))
    return {
        "accuracy": right.get(answer, False),
        "coverage": any(right[c.answer] for c in seen),
        "right": sum(right[c.answer] for c in seen) / len(seen),
        "candidates": len(seen),
        "tokens": sum(c.generated_tokens for c in seen),
        "texts": len({c.text for c in seen}),
        "answers": len({c.answer for c in seen} - {None}),
        "auc": mean(share for _, _, share in ranked),
        "new": mean(share for _, new, share in ranked if new),
        **{f"auc{n}": mean(share for at, _, share in ranked if at == n) for n in range(1, 5)},
        **{f"covered{n}": float(share) for n, share in enumerate(covered)},
    }


COLUMNS = (
    "rule",
    "accuracy %",
    "difference",
    "coverage %",
    "difference",
    "right candidates %",
    "candidates",
    "tokens",
    "texts",
    "answers",
    "AUC",
    "AUC, new",
    "AUC by round",
    "covered by round %",
)


def compare(folder: Path, rules: Sequence[str], replicates: int, overrides: Sequence[str]) -> str:
    """The table with a row for each rule."""
    pools = [torch.load(path, weights_only=False) for path in sorted(folder.glob("*.pt"))]
    rows, first = [], None
    for rule in rules:
        method = build_method(compose_config(["candidate_points=pool", *overrides, *rule.split()]))
        results = [[replay(recorded, method, i) for i in range(replicates)] for recorded in pools]
        table = {
            key: torch.tensor([[row[key] for row in group] for group in results]).double().nanmean(-1)
            for key in results[0][0]
        }
        first = first or table

        def paired(key: str, table=table, first=first) -> str:
            gap = 100 * (table[key] - first[key])
            return f"{gap.mean():+.1f} ± {gap.std() / len(gap) ** 0.5:.1f}"

        means = {key: float(values.nanmean()) for key, values in table.items()}
        rows.append(
            [
                f"`{rule}`",
                f"{100 * means['accuracy']:.1f}",
                paired("accuracy"),
                f"{100 * means['coverage']:.1f}",
                paired("coverage"),
                f"{100 * means['right']:.1f}",
                *(f"{means[key]:.1f}" for key in ("candidates", "tokens", "texts", "answers")),
                *(f"{means[key]:.2f}" for key in ("auc", "new")),
                " ".join(f"{means[f'auc{n}']:.2f}" for n in range(1, 5)),
                " ".join(f"{100 * means[f'covered{n}']:.0f}" for n in range(5)),
            ]
        )
        print(" | ".join(rows[-1]), flush=True)
    return f"{len(pools)} problems, {replicates} orders of each pool.\n\n{Table(COLUMNS, rows).markdown()}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--points", type=int, default=128)
    parser.add_argument(
        "--rule", action="append", default=[], help="overrides of one row; the first is the reference"
    )
    parser.add_argument("--replicates", type=int, default=2)
    parser.add_argument("overrides", nargs="*", help="configuration of all rows")
    args = parser.parse_intermixed_args()
    if args.command == "record":
        record(args.folder, args.problems, args.points, args.overrides)
    else:
        print(compare(args.folder, args.rule, args.replicates, args.overrides))


if __name__ == "__main__":
    main()
