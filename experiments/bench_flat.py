"""Cost a problem and memory at growing numbers of problems: python experiments/bench_flat.py [options]

    --counts 100 500 1000    numbers of problems, each run in a process of its own (5000 takes its time)
    --engine hf              or fake, which shows what is not the model's
    --overrides KEY=VALUE..  of the configuration

Soft Reasoning with its defaults on bundled test problems (repeated under new ids beyond 500), stored and
reported as any run. Time is that of the run, without loading the model and after a warm-up; memory is the
largest resident set of the process, after a fifth of the run's time and at its end. The scheduler's share is
what engine, optimiser, methods and store leave; report and plots come once, behind the last problem.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import redirect_stdout
from dataclasses import replace

import torch
from omegaconf import OmegaConf

from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.data.demo import demo_dataset
from soft_reasoning.reports.tables import Table
from soft_reasoning.runs.local import LocalLauncher
from soft_reasoning.runs.runner import run
from soft_reasoning.types import Problem

KINDS = ("engine", "optimiser", "method", "store")


def problems_of(count: int) -> list[Problem]:
    """``count`` problems spread evenly over the test split, so that every count has the same mix."""
    bundled = demo_dataset("test", name="demo").problems()
    step = max(1, len(bundled) // count)
    spread = bundled[::step][:count]
    return [replace(spread[i % len(spread)], id=f"{i}") for i in range(count)]


class Memory:
    """The largest resident set of this process (MiB), noted while a block runs."""

    def __enter__(self) -> Memory:
        self._start, self._noted, self._over = time.perf_counter(), [], threading.Event()
        self._thread = threading.Thread(target=self._note)
        self._thread.start()
        return self

    def __exit__(self, *fault: object) -> None:
        self._over.set()
        self._thread.join()

    def _note(self) -> None:
        over = False
        while not over:
            over = self._over.wait(0.2)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            self._noted.append((time.perf_counter() - self._start, peak))

    def after(self, share: float) -> float:
        """The most until ``share`` of the block's time had passed."""
        end = share * self._noted[-1][0]
        return next(peak for at, peak in self._noted if at >= end)


def measure(count: int, overrides: list[str]) -> dict[str, float]:
    """One run in this process: seconds by kind, CPU seconds and memory in MiB."""
    config = compose_config(overrides)
    problems = problems_of(count)
    solver = LocalLauncher().start(config, problems)
    plain = OmegaConf.to_container(config, resolve=True)
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        run(problems[:32], solver, f"{folder}/warm-up", plain, progress=False)
        with Memory() as memory:
            cpu, wall = time.process_time(), time.perf_counter()
            metrics = run(problems, solver, f"{folder}/run", plain, progress=False).metrics
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {**metrics["seconds"], "sequences": metrics["tokens"]["total"]["sequences"], "cpu": cpu,
            "wall": wall, "early": memory.after(0.2), "peak": memory.after(1)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", type=int, nargs="+", default=[100, 500, 1000])
    parser.add_argument("--engine", default="hf")
    parser.add_argument("--overrides", nargs="*", default=[])
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)  # a run in this process
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.counts[0], [f"engine={args.engine}", *args.overrides])))
        return
    rows, costs = [], []
    for count in args.counts:
        command = [sys.executable, __file__, "--one", "--counts", str(count), "--engine", args.engine]
        done = subprocess.run(
            [*command, "--overrides", *args.overrides], stdout=subprocess.PIPE, check=True, text=True
        )
        one = json.loads(done.stdout)
        costs.append(one["wall"] / count)
        known = [one[kind] for kind in KINDS]
        parts = *known, one["total"] - sum(known), one["wall"] - one["total"]
        shares = [f"{100 * part / one['wall']:.1f}" for part in parts]
        rows.append(
            [f"{count:,}", f"{one['wall']:.1f}", f"{1000 * costs[-1]:.1f}",
             f"{1000 * one['cpu'] / count:.1f}",
             f"{one['sequences'] / count:.1f}", *shares, f"{one['early']:,.0f}", f"{one['peak']:,.0f}"]
        )  # fmt: skip
    kinds = (f"{kind} %" for kind in (*KINDS, "scheduler", "report"))
    columns = ("problems", "seconds", "ms a problem", "CPU ms a problem", "sequences a problem", *kinds,
               "MiB after a fifth", "MiB")  # fmt: skip
    print(Table(columns, rows).markdown())
    spread = 100 * (max(costs) / min(costs) - 1)
    print(f"\nlargest cost a problem over smallest: +{spread:.0f} %; {torch.get_num_threads()} threads, "
          f"{os.cpu_count()} CPUs, torch {torch.__version__}")  # fmt: skip


if __name__ == "__main__":
    main()
