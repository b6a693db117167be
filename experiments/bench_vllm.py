"""vLLM against the other engine and against bare vLLM: python experiments/bench_vllm.py [--problems 200]

Runs where vLLM is installed. On the bundled model in float32, with the defaults of Soft Reasoning:

- vLLM completes in one call all requests that a whole run sends to the Hugging Face engine, for every
  placement with one and five soft tokens. Tokens are compared; with sigma = 0 also with the model's greedy
  continuation.
- A whole run on vLLM is compared in texts, answers and cached prompts, and in time with a bare engine that
  gets the same requests in one call. The two take turns three times, each on a new engine; the minimum of CPU
  and elapsed seconds counts.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import torch
from vllm import LLM, SamplingParams

from soft_reasoning.configuration.build import build_context, build_engine, build_method
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.data.demo import demo_dataset
from soft_reasoning.engines.paths import DEMO_FOLDER
from soft_reasoning.engines.vllm.engine import CPU_OPTIONS, VLLMEngine
from soft_reasoning.engines.vllm.setup import SET_HERE
from soft_reasoning.reports.tables import Table
from soft_reasoning.scheduling.scheduler import Clock, drive
from soft_reasoning.types import Completion, Request

PLACES = [(place, scope) for place in ("last", "middle", "first") for scope in (1, 5)]
MEMORY = 0.5
"""The share of a GPU's memory that vLLM takes; the other engine lies beside it."""
TIMES = 3
COLUMNS = ("what", "requests", "same tokens", "log-probabilities apart by")


class Recorder:
    """An engine that remembers what was asked of it and, by ticket, what it answered."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.asked: dict[int, Request] = {}
        self.answers: dict[int, Completion] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def add(self, requests: Sequence[Request]) -> list[int]:
        tickets = self._engine.add(requests)
        self.asked.update(zip(tickets, requests, strict=True))
        return tickets

    def step(self, tickets: Collection[int] | None = None) -> list[tuple[int, Completion]]:
        done = self._engine.step(tickets)
        self.answers.update(done)
        return done

    @property
    def requests(self) -> list[Request]:
        return list(self.asked.values())

    @property
    def completions(self) -> list[Completion]:
        return [self.answers[ticket] for ticket in self.asked]


def solve(
    engine: Any, problems: Sequence[Any], *overrides: str, clock: Clock | None = None
) -> dict[str, Any]:
    config = compose_config(overrides)
    method, context = build_method(config), build_context(config, engine)
    driven = drive(problems, method, context, max_live=config.max_live, clock=clock)
    return {problem.id: result for problem, result in driven}


def compared(ours: Sequence[Completion], theirs: Sequence[Completion]) -> tuple[str, str, str]:
    """How many pairs there are, how many have the same tokens, and how far apart those are."""
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.token_ids == b.token_ids]
    apart = max(abs(x - y) for a, b in pairs for x, y in zip(a.logprobs, b.logprobs, strict=True))
    return f"{len(ours):,}", f"{len(pairs):,}", f"{apart:.0e}"


def agreement(ours: VLLMEngine, theirs: Any, problems: Sequence[Any]) -> list[tuple[str, ...]]:
    rows = []
    for place, scope in PLACES:
        recorder = Recorder(theirs)
        solve(recorder, problems, f"method.placement={place}", f"method.scope={scope}")
        row = compared(ours.generate(recorder.requests), recorder.completions)
        rows.append((f"whole run, {place}, m = {scope}", *row))
        print(rows[-1], flush=True)
    prompts = build_context(compose_config(), theirs).prompts
    ids, stop = [prompts.solve(problem).ids for problem in problems], prompts.stop
    for scope in (1, 5):
        whole = theirs.generate(
            [Request(p, max_new_tokens=300, min_new_tokens=scope, stop=stop) for p in ids]
        )
        soft = [ours.embed(done.token_ids[:scope]) for done in whole]
        made = ours.generate(
            [Request(p, x, max_new_tokens=300 - scope, stop=stop) for p, x in zip(ids, soft, strict=True)]
        )
        rest = [
            Completion(d.token_ids[scope:], d.logprobs[scope:], d.text, d.finish_reason, d.prompt_tokens)
            for d in whole
        ]
        rows.append((f"sigma = 0, last, m = {scope}", *compared(made, rest)))
        print(rows[-1], flush=True)
    return rows


def prompt_of(engine: VLLMEngine, request: Request) -> dict[str, Any]:
    """As vLLM takes it: ids alone, or with the rows of the soft tokens."""
    ids = list(request.prompt_ids)
    if request.soft is None:
        return {"prompt_token_ids": ids}
    at, count = len(ids) if request.position is None else request.position, len(request.soft)
    rows = torch.zeros(len(ids) + count, engine.hidden_size)
    rows[at : at + count] = request.soft
    return {
        "prompt_embeds": rows,
        "prompt_token_ids": [*ids[:at], *[0] * count, *ids[at:]],
        "prompt_is_token_ids": [not at <= i < at + count for i in range(len(rows))],
    }


def bare(asked: Recorder, engine: VLLMEngine) -> Callable[[], Any]:
    """All that ``asked`` remembers, for one call of vLLM's own ``generate``, with ``engine``'s options."""
    common = {"temperature": 0.0, "ignore_eos": True, "stop_token_ids": sorted(engine.eos_ids)}
    prompts, params = [], []
    for request in asked.requests:
        prompts.append(prompt_of(engine, request))
        if request.max_new_tokens == 0:
            params.append(SamplingParams(max_tokens=1, logprobs=1, flat_logprobs=True, **common))
            continue
        room = min(request.max_new_tokens, engine.context_length - len(prompts[-1]["prompt_token_ids"]))
        own = SamplingParams(
            max_tokens=room, stop=list(request.stop), logprobs=0, flat_logprobs=True, **common
        )
        params.append(own)
    engine.close()
    settle()
    llm = LLM(
        str(DEMO_FOLDER), dtype="float32", gpu_memory_utilization=MEMORY, **SET_HERE,
        **(CPU_OPTIONS if engine.device.type == "cpu" else {}),
    )  # fmt: skip
    llm.generate(prompts[:8], params[:8], use_tqdm=False)  # warm up
    llm.reset_prefix_cache()
    return lambda: llm.generate(prompts, params, use_tqdm=False)


def vllm_engine() -> VLLMEngine:
    config = ["engine=vllm", "model.dtype=float32", f"engine.gpu_memory_utilization={MEMORY}"]
    return build_engine(compose_config(config))


def settle() -> None:
    """Leave no garbage to what comes next, nor objects that its collections would go through."""
    gc.collect()
    gc.freeze()


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    return time.process_time() - cpu, time.perf_counter() - wall, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--only-time", action="store_true", help="leave out the comparison of tokens")
    args = parser.parse_args()
    problems = demo_dataset("test", name="demo", limit=args.problems).problems()
    theirs = build_engine(compose_config(["model.dtype=float32"]))
    if not args.only_time:
        ours = vllm_engine()
        print(Table(COLUMNS, agreement(ours, theirs, problems)).markdown(), "\n", flush=True)
        ours.close()
    expected = solve(theirs, problems)
    theirs.close()

    times = []
    for _ in range(TIMES):
        settle()
        ours, clock = vllm_engine(), Clock()
        solve(ours, problems[:8], "engine=vllm")  # warm up
        ours.begin_run()
        asked = Recorder(ours)
        work = partial(solve, asked, problems, "engine=vllm", clock=clock)
        cpu, wall, results = timed(work)
        times.append((cpu, wall, *timed(bare(asked, ours))[:2]))
        kinds = ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in clock.seconds.items())
        print(f"whole run {wall:.1f} s ({kinds}), bare {times[-1][3]:.1f} s", flush=True)
    texts = [
        [c.text for c in results[p.id].candidates] == [c.text for c in expected[p.id].candidates]
        for p in problems
    ]
    answers = [results[p.id].answer == expected[p.id].answer for p in problems]
    print(
        f"whole runs: the same texts for {sum(texts)} of {len(problems)} problems, answers for {sum(answers)}"
    )
    tried: dict[tuple[int, ...], list[Completion]] = {}  # by prompt: its candidates in the order submitted
    for ticket, request in asked.asked.items():
        if request.soft is not None:
            tried.setdefault(request.prompt_ids, []).append(asked.answers[ticket])
    count = compose_config().search.candidates
    firsts = [c for found in tried.values() for c in found[::count]]
    others = [c for found in tried.values() for i, c in enumerate(found) if i % count]
    for name, some in (("first", firsts), ("others", others)):
        share = sum(c.cached_tokens for c in some) / sum(c.prompt_tokens for c in some)
        found = sum(c.cached_tokens > 0 for c in some)
        print(f"cached prompts of a round's {name}: {found:,} of {len(some):,}, {share:.0%} of their tokens")
    cpu, wall, least_cpu, least_wall = (min(column) for column in zip(*times, strict=True))
    rows = [
        ("whole run", f"{cpu:.1f}", f"{wall:.1f}"),
        ("bare engine, one call", f"{least_cpu:.1f}", f"{least_wall:.1f}"),
        ("ratio", f"{cpu / least_cpu:.2f}", f"{wall / least_wall:.2f}"),
    ]
    print(Table((f"{len(problems)} problems", "processor s", "clock s"), rows).markdown())


if __name__ == "__main__":
    main()
