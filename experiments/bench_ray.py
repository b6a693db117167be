"""One run on 1, 2 and 4 Ray workers, and on 4 of which two are killed: python experiments/bench_ray.py
[options]

    --problems 200
    --engine hf              or fake
    --overrides KEY=VALUE..  of the configuration, such as ray.cpus=0.5 with few CPUs

Soft Reasoning with its defaults solves bundled test problems, first in this process. The records of every
other run must be the same bytes, apart from their order and the number of reused tokens, which depends on
earlier prompts. Seconds are those of the run after the engines are loaded.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import threading
import time
from contextlib import closing, redirect_stdout
from pathlib import Path

import psutil
from omegaconf import OmegaConf

from soft_reasoning.configuration.build import build_launcher
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.data.demo import demo_dataset
from soft_reasoning.reports.tables import Table
from soft_reasoning.runs.files import read_records
from soft_reasoning.runs.runner import run


def records(folder: str) -> dict[str, str]:
    """The records of a run as text, by problem; fails where one is there twice."""
    found: dict[str, str] = {}
    for record in read_records(folder):
        assert record["doc_id"] not in found
        for usage in record["usage"].values():
            del usage["cached_tokens"], usage["attended"]
        found[record["doc_id"]] = json.dumps(record)
    return found


def kill_two(folder: str, after: int, dead: set[int]) -> None:
    """Kill two of this process' Ray workers, the first once ``after`` records are stored and the second once
    twice as many are; ``dead`` gets the process ids of those that are gone."""
    samples = Path(folder, "samples.jsonl")
    while len(dead) < 2:
        time.sleep(0.02)
        if not samples.exists() or samples.read_bytes().count(b"\n") < after * (1 + len(dead)):
            continue
        children = psutil.Process().children(recursive=True)
        at_work = (p for p in children if " ".join(p.cmdline()).startswith("ray::Worker.work"))
        victim = next((p for p in at_work if p.pid not in dead), None)
        if victim is not None:
            victim.kill()
            victim.wait(timeout=10)
            dead.add(victim.pid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--engine", default="hf")
    parser.add_argument("--overrides", nargs="*", default=[])
    args = parser.parse_args()
    logging.getLogger("ray").setLevel(logging.ERROR)
    problems = demo_dataset("test", name="demo", limit=args.problems).problems()
    rows, expected = [], {}
    for name, workers, kill in (
        ("no launcher", 0, False), ("1 worker", 1, False), ("2 workers", 2, False), ("4 workers", 4, False),
        ("4 workers, 2 killed", 4, True),
    ):  # fmt: skip
        on_ray = ["launcher=ray", f"ray.workers={workers}", *args.overrides] if workers else []
        config = compose_config([f"engine={args.engine}", *on_ray])
        plain = OmegaConf.to_container(config, resolve=True)
        with tempfile.TemporaryDirectory() as folder, closing(build_launcher(config)) as launcher:
            solver = launcher.start(config, problems)
            dead: set[int] = set()
            killer = threading.Thread(target=kill_two, args=(folder, args.problems // 5, dead), daemon=True)
            if kill:
                killer.start()
            start = time.perf_counter()
            with redirect_stdout(sys.stderr):
                metrics = run(problems, solver, folder, plain, progress=False).metrics
            seconds, found = time.perf_counter() - start, records(folder)
            if kill:
                killer.join(timeout=10)
                assert len(dead) == 2, f"expected two killed workers, got {len(dead)}: take more --problems"
        expected = expected or found
        same = sum(found.get(name) == record for name, record in expected.items())
        tokens = metrics["tokens"]["total"]["generated"]
        rows.append([name, f"{seconds:.1f}", f"{tokens / seconds:,.0f}", f"{same}/{len(expected)}"])
    print(Table(("", "seconds", "tokens/s", "same records"), rows).markdown())
    print(f"\n{args.problems} problems, engine={args.engine}, {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()
