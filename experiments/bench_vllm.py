"""A whole run on vLLM against bare vLLM: python experiments/bench_vllm.py [--problems 200]

Runs where vLLM is installed, on the bundled model in float32, with the defaults of Soft Reasoning. The run
is compared with the Hugging Face engine's in texts and answers, and in time with a bare engine that gets the
same requests in one call. The two take turns three times, each on a new engine; the minimum of CPU and
elapsed seconds counts.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
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
from soft_reasoning.types import Request

MEMORY = 0.5
"""The share of a GPU's memory that vLLM takes; the other engine lies beside it."""
TIMES = 3


class Recorder:
    """An engine that remembers what was asked of it."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.requests: list[Request] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def add(self, requests: Sequence[Request]) -> list[int]:
        self.requests += requests
        return self._engine.add(requests)


def solve(
    engine: Any, problems: Sequence[Any], *overrides: str, clock: Clock | None = None
) -> dict[str, Any]:
    config = compose_config(overrides)
    method, context = build_method(config), build_context(config, engine)
    driven = drive(problems, method, context, max_live=config.max_live, clock=clock)
    return {problem.id: result for problem, result in driven}


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
    args = parser.parse_args()
    problems = demo_dataset("test", name="demo", limit=args.problems).problems()
    theirs = build_engine(compose_config(["model.dtype=float32"]))
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
    cpu, wall, least_cpu, least_wall = (min(column) for column in zip(*times, strict=True))
    rows = [
        ("whole run", f"{cpu:.1f}", f"{wall:.1f}"),
        ("bare engine, one call", f"{least_cpu:.1f}", f"{least_wall:.1f}"),
        ("ratio", f"{cpu / least_cpu:.2f}", f"{wall / least_wall:.2f}"),
    ]
    print(Table((f"{len(problems)} problems", "processor s", "clock s"), rows).markdown())


if __name__ == "__main__":
    main()
