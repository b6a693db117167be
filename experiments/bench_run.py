"""The whole run in batches against one problem at a time: python experiments/bench_run.py [--problems 100]

Soft Reasoning with its defaults on bundled test problems, the same engine and results, two ways: the
scheduler with 64 active problems, and with one.
"""

from __future__ import annotations

import argparse
import time

from soft_reasoning.analysis.tables import Table
from soft_reasoning.build import build_context, build_engine, build_method
from soft_reasoning.config import compose_config
from soft_reasoning.data.demo import demo_dataset
from soft_reasoning.scheduler import Clock, drive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=100)
    count = parser.parse_args().problems
    config = compose_config()
    engine = build_engine(config)
    method, context = build_method(config), build_context(config, engine)
    problems = demo_dataset("test", name="demo", limit=count).problems(0)
    list(drive(problems[:8], method, context))  # warm up
    rows, answers, seconds = [], [], []
    for live in (64, 1):
        engine.begin_run()  # which forgets the prompts
        clock = Clock()
        cpu, wall = time.process_time(), time.perf_counter()
        results = {p.id: r for p, r in drive(problems, method, context, max_live=live, clock=clock)}
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        answers.append({name: (r.answer, r.candidates) for name, r in results.items()})
        seconds.append((wall, cpu))
        parts = [f"{clock.seconds[kind]:.1f}" for kind in ("engine", "optimiser", "method")]
        rows.append((f"{live} active", f"{wall:.1f}", f"{cpu:.1f}", *parts))
    ratio = [one / many for many, one in zip(*seconds, strict=True)]
    rows.append(("ratio", f"{ratio[0]:.1f}", f"{ratio[1]:.1f}", "", "", ""))
    print(Table(("problems", "wall s", "CPU s", "engine s", "optimiser s", "method s"), rows).markdown())
    print(f"\n{count} problems; results identical: {answers[0] == answers[1]}")


if __name__ == "__main__":
    main()
