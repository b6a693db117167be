"""Every verifier, final rule and stopping rule on the same recorded candidates.

    python experiments/verifier_accuracy.py record FOLDER method=verified_sampling decoding.temperature=1.3
    python experiments/verifier_accuracy.py judge FOLDER [--verifier NAME] method=...
    python experiments/verifier_accuracy.py table FOLDER [FOLDER ...]

``record`` draws five rounds of five candidates a problem, which nothing stops, with what the model's certainty
is computed from. ``judge`` lets verifiers judge them round by round; verifiers that differ in how they weigh
what was written share it. ``table`` applies rules to the verdicts and replays stopping, which generates
nothing. Of several folders (seeds) it gives the mean and the standard deviation. All of it can be continued.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from soft_reasoning.answers import Grader
from soft_reasoning.configuration.build import build_context, build_dataset, build_engine, build_method
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.engines.base import PreparedRequest
from soft_reasoning.engines.queue import QueueEngine
from soft_reasoning.reports.tables import Table
from soft_reasoning.rewards.coherence import LIKELIEST, coherence, tokens_of
from soft_reasoning.rewards.verifiers import ALTERNATIVES, Verdict, Verifier
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.types import Candidate, Completion, Generate, Problem, Request, Result, TopLogprobs

FIVE = ("verifier.samples=5", "verifier.temperature=0.7")
SURE = ("verifier.confidence=sequence_prob",)
VERIFIERS: dict[str, tuple[str, ...]] = {
    "single_judge": (),
    "single_judge, sequence_prob": SURE,
    "probability": (),
    "multi_generate": (),
    "multi_generate, sequence_prob": SURE,
    "multi_judge": (),
    "calibrated": (),
    "comparison": (),
    "comparison, by multi_judge": (
        "verifier.judge.name=multi_judge",
        "verifier.judge.judgement._target_=soft_reasoning.rewards.judgement.NamedChoice",
    ),
    "probability, after a check": ("verifier.check=60",),
    "single_generate, sequence_prob": SURE,
    "fresh": (),
    "fresh, 5 samples": FIVE,
    "oracle": (),
}
QUICK = tuple(VERIFIERS)[:6]
"""Those that write a few tokens."""
CERTAINTIES = ("mean_prob", "answer_prob", "self_certainty", "lowest_window")
K = 5
"""Candidates of a round."""


class Remembering(QueueEngine):
    """Generates a request once, with its likeliest tokens."""

    def __init__(self, engine: Any, top: int) -> None:
        super().__init__()
        self._engine, self._top = engine, top
        self.known: dict[tuple, Completion] = {}

    def check(self, request: Request) -> PreparedRequest:
        return self._engine.check(request)

    def advance(self) -> Iterator[tuple[int, Completion]]:
        requests = {ticket: prepared.request for ticket, prepared in self.queued.items()}
        keys = {ticket: _key(request) for ticket, request in requests.items()}
        new = {keys[t]: replace(r, top_logprobs=max(self._top, r.top_logprobs)) for t, r in requests.items()
               if keys[t] not in self.known}  # fmt: skip
        self.known.update(zip(new, self._engine.generate(list(new.values())), strict=True))
        return ((ticket, self.known[key]) for ticket, key in keys.items())


def _key(request: Request) -> tuple:
    seed = request.seed if request.sampling.temperature else 0
    soft = None if request.soft is None else request.soft.numpy().tobytes()
    return request.prompt_ids, request.sampling, seed, request.next_logits, soft, request.max_new_tokens


class Parts:
    """Engine, problems and context of a configuration."""

    def __init__(self, overrides: Sequence[str]) -> None:
        self.config = compose_config(overrides)
        self.engine, dataset = build_engine(self.config), build_dataset(self.config)
        self.context = build_context(self.config, self.engine, dataset.exemplars(self.config.seed))
        self.problems = dataset.problems(self.config.seed)


def lines(path: Path) -> dict[str, Any]:
    """The rows of a file by their problem."""
    if not path.exists():
        return {}
    return {(row := json.loads(line))["id"]: row for line in path.read_text().splitlines()}


def record(folder: Path, overrides: Sequence[str]) -> None:
    """Draw the candidates."""
    parts = Parts([*overrides, "verifier=none", "search.stopping.rule=none"])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "candidates.jsonl"
    todo = [p for p in parts.problems if p.id not in lines(path)]
    engine, tokenizer = Remembering(parts.engine, LIKELIEST), parts.engine.tokenizer
    with path.open("a", encoding="utf-8") as file:
        for problem, result in drive(todo, build_method(parts.config), parts.context, engine=engine):
            tops = {(c.token_ids, c.logprobs): c for c in engine.known.values()}
            rows = []
            for c in result.candidates:
                done = tops[c.token_ids, c.logprobs]
                span = parts.context.grader.locate(c.text, problem.answer_type)
                where = tokens_of(span, done, tokenizer) if span else ()
                rows.append({**c.stored(), **{kind: coherence(done, kind, where) for kind in CERTAINTIES}})
            facts = {"question": problem.question, "gold": problem.gold, "type": problem.answer_type}
            file.write(json.dumps({"id": problem.id, **facts, "candidates": rows}) + "\n")
            file.flush()


@dataclass(frozen=True)
class Judging:
    """A method for the scheduler: verdicts on candidates that are already there, round by round."""

    verifier: Verifier
    given: Mapping[str, Sequence[Candidate]]
    rounds: int
    name: str = "judging"

    def solve(self, problem, context):
        verdicts: list[Verdict] = []
        rows = []
        candidates = self.given[problem.id]
        for number in range(self.rounds):
            found = candidates[K * number : K * (number + 1)]
            steps = self.verifier.verify(problem, found, context, stage=f"round-{number}", earlier=verdicts)
            verdict, tokens = yield from counted(steps)
            verdicts.append(verdict)
            rows.append([verdict.scores, verdict.answers, verdict.weights, verdict.agreement, tokens])
        return Result(None, (), tuple({"row": row} for row in rows))


def counted(steps):
    """Run ``steps``, and return their result and the number of tokens generated for it."""
    tokens, answer = 0, None
    while True:
        try:
            effect = steps.send(answer)
        except StopIteration as end:
            return end.value, tokens
        answer = yield effect
        if isinstance(effect, Generate):
            tokens += sum(one.generated_tokens for one in answer)


def judge(folder: Path, verifiers: Sequence[str], overrides: Sequence[str], rounds: int) -> None:
    """Let ``verifiers`` judge the candidates of ``folder``."""
    parts = Parts(overrides)
    given = {key: read(row) for key, row in lines(folder / "candidates.jsonl").items()}
    engine = Remembering(parts.engine, ALTERNATIVES)
    for name in verifiers:
        path = folder / f"{name}.jsonl"
        known = lines(path)
        todo = [p for p in parts.problems if p.id in given and p.id not in known]
        config = compose_config([*overrides, f"verifier={name.partition(',')[0]}", *VERIFIERS[name]])
        method = Judging(build_method(config).verifier, given, rounds)
        with path.open("a", encoding="utf-8") as file:
            for problem, result in drive(todo, method, parts.context, engine=engine):
                rows = [entry["row"] for entry in result.trace]
                file.write(json.dumps({"id": problem.id, "rounds": rows}) + "\n")
                file.flush()
        print(folder.name, name, len(todo), flush=True)


def read(row: Mapping[str, Any]) -> list[Candidate]:
    """The candidates of a line."""
    keys = ("text", "answer", "round", "coherence", "u", "generated_tokens")
    return [Candidate(**{key: c[key] for key in keys}) for c in row["candidates"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("record", "judge", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--verifier", action="append", choices=VERIFIERS, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("more", nargs="*", help="configuration, as on the command line of a run; or folders")
    args = parser.parse_intermixed_args()
    if args.command == "record":
        record(args.folder, args.more)
    elif args.command == "judge":
        judge(args.folder, args.verifier or QUICK, args.more, args.rounds)


if __name__ == "__main__":
    main()
