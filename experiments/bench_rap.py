"""Tree search in batches against one problem at a time: python experiments/bench_rap.py [--problems 64]

Overrides of the configuration may follow, such as model.path=FOLDER.

Reasoning via planning with its defaults on bundled test problems, two ways: the scheduler with 64 active
problems, and with one.
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
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("overrides", nargs="*", help="of the configuration, such as model.path=FOLDER")
    args = parser.parse_args()
    config = compose_config(["method=rap", *args.overrides])
    method = build_method(config)
    problems = demo_dataset("test", name="demo", limit=args.problems).problems(0)
    rows, found, seconds = [], [], []
    for live in (64, 1):
        context = build_context(config, build_engine(config))  # anew: nothing is kept from the other way
        list(drive(problems[-2:], method, context))  # warm up
        clock = Clock()
        cpu, wall = time.process_time(), time.perf_counter()
        results = {p.id: r for p, r in drive(problems, method, context, max_live=live, clock=clock)}
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        found.append({name: (r.answer, r.candidates, r.trace) for name, r in results.items()})
        seconds.append((wall, cpu))
        parts = [f"{clock.seconds[kind]:.1f}" for kind in ("engine", "method")]
        rows.append((f"{live} active", f"{wall:.1f}", f"{cpu:.1f}", *parts, f"{clock.generated_tokens}"))
    ratio = [one / many for many, one in zip(*seconds, strict=True)]
    rows.append(("ratio", f"{ratio[0]:.1f}", f"{ratio[1]:.1f}", "", "", ""))
    print(Table(("problems", "wall s", "CPU s", "engine s", "method s", "tokens"), rows).markdown())
    solved = sum(context.grader.correct(found[0][p.id][0], p) for p in problems)
    print(f"\n{len(problems)} problems, {solved} solved; results identical: {found[0] == found[1]}")


if __name__ == "__main__":
    main()
