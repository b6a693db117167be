"""A small run for tests: the shipped fake engine, Soft Reasoning on it, and a way to kill it."""

import os
import signal
import sys

from omegaconf import OmegaConf

from soft_reasoning.answers import Grader
from soft_reasoning.configuration.build import build_context, build_engine, build_method
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.runs.local import Local
from soft_reasoning.runs.metrics import measure
from soft_reasoning.runs.records import grade, record_of
from soft_reasoning.runs.runner import run, write_results
from soft_reasoning.runs.store import Store
from soft_reasoning.types import Problem

LEVELS = ("easy", "medium", "hard")
# The fake engine never agrees with itself; under this rule its searches end after different rounds.
OPTIONS = [
    "engine=fake",
    "max_new_tokens=30",
    "acquisition=ei",
    "search.stopping.rule=improvement",
    "model.sigma=2",
]


def problems(n):
    return [
        Problem(
            f"p{i}",
            f"Ann has {i} pens and buys {i % 5}. How many?",
            str(i % 21),
            doc={"difficulty": LEVELS[i % 3]},
        )
        for i in range(n)
    ]


def parts(*overrides):
    """(method, context, config) for a run on the fake engine."""
    config = compose_config([*OPTIONS, *overrides])
    plain = OmegaConf.to_container(config, resolve=True)
    return build_method(config), build_context(config, build_engine(config)), plain


def summarise(rows, *, seconds=None, peaks=None, **more):
    """The metrics of ``rows``."""
    return measure(rows, costs={"seconds": seconds or {}, "peak_bytes": peaks or {}}, **more)


def stored(folder, config, results, **more):
    """A finished run in ``folder``: ``results`` are pairs of a problem and its result."""
    rows = []
    with Store(folder, config) as store:
        for problem, result in results:
            record = record_of(problem, result, Grader())
            store.append(record)
            rows.append(grade(record, Grader()))
    write_results(folder, summarise(rows, **more), rows)
    return folder


class KilledAfter:
    """An engine that ends its own process when requests come for the ``calls``-th time."""

    def __init__(self, engine, calls):
        self._engine, self._left = engine, calls

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def add(self, requests):
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._engine.add(requests)


def main(folder, count, max_live, calls):
    """Run ``count`` problems into ``folder``, killed when requests come for the ``calls``-th time."""
    method, context, config = parts()
    object.__setattr__(context, "engine", KilledAfter(context.engine, calls))
    run(problems(count), Local(method, context, max_live), folder, config)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
