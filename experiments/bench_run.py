"""The whole run in batches against one problem at a time: python experiments/bench_run.py [--problems 100]

    python experiments/bench_run.py --problems 64 method=rap

A method, Soft Reasoning with its defaults unless configured otherwise, on bundled problems, two ways: the
scheduler with 64 active problems, and with one. Each way has a new engine; results are the same.
"""

from __future__ import annotations

import argparse
import time

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine, build_method
from soft_reasoning.lab.data.demo import demo_dataset
from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.schedule.scheduler import Clock, drive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("overrides", nargs="*", help="configuration, as on the command line of a run")
    args = parser.parse_args()
    config = compose_config(args.overrides)
    method = build_method(config)
    problems = demo_dataset("test", name="demo", limit=args.problems).problems()
    rows, outcomes, seconds = [], [], []
    for live in (64, 1):
        context = build_context(config, build_engine(config))
        list(drive(problems[-2:], method, context))  # warm up
        clock = Clock()
        cpu, wall = time.process_time(), time.perf_counter()
        results = {p.id: r for p, r in drive(problems, method, context, max_live=live, clock=clock)}
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        outcomes.append({name: (r.answer, r.candidates, r.trace) for name, r in results.items()})
        seconds.append((wall, cpu))
        parts = [f"{clock.seconds[kind]:.1f}" for kind in ("engine", "optimiser", "method")]
        rows.append((f"{live} active", f"{wall:.1f}", f"{cpu:.1f}", *parts))
    ratio = [single / batched for batched, single in zip(*seconds, strict=True)]
    rows.append(("ratio", f"{ratio[0]:.1f}", f"{ratio[1]:.1f}", "", "", ""))
    print(Table(("problems", "wall s", "CPU s", "engine s", "optimiser s", "method s"), rows).markdown())
    print(f"\n{len(problems)} problems; results identical: {outcomes[0] == outcomes[1]}")


if __name__ == "__main__":
    main()
