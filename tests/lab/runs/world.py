"""A small run for tests: the shipped fake engine and Soft Reasoning on it."""

import json
from dataclasses import replace

from omegaconf import OmegaConf

from soft_reasoning.answers import Grader
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine, build_method
from soft_reasoning.lab.runs.grading import final_rule, grade
from soft_reasoning.lab.runs.manifest import build_manifest
from soft_reasoning.lab.runs.metrics import measure
from soft_reasoning.lab.runs.records import Record, Store, read_records
from soft_reasoning.lab.runs.runner import LocalLauncher, describe_run, run, write_results
from soft_reasoning.types import Problem

LEVELS = [{"difficulty": level} for level in ("easy", "medium", "hard")]
# The fake engine never agrees with itself; under this rule its searches end after different rounds.
RULE = "stopping=improvement"
OPTIONS = ["engine=fake", "max_new_tokens=30", "acquisition=ei", RULE, "model.sigma=2"]


def problems(n):
    return [
        Problem(f"p{i}", f"Ann has {i} pens and buys {i % 5}. How many?", str(i % 21), doc=LEVELS[i % 3])
        for i in range(n)
    ]


def parts(*overrides):
    """(method, context, config) for a run on the fake engine."""
    config = compose_config([*OPTIONS, *overrides])
    plain = OmegaConf.to_container(config, resolve=True)
    return build_method(config), build_context(config, build_engine(config)), plain


class Prepared(LocalLauncher):
    """Solves with a method and a context that exist already."""

    def __init__(self, method, context, max_live):
        super().__init__()
        self.method, self.context, self.max_live = method, context, max_live

    def start(self, config, problems, exemplars=()):
        return describe_run(self.method, self.context)


def solve(problems, method, context, folder, config, *, max_live=64, **more):
    """Run ``problems`` into ``folder`` in this process; return the metrics."""
    launcher = Prepared(method, context, max_live)
    return run(problems, launcher, context.grader, folder, {"progress": False, **config}, **more)


def kept(folder):
    """The records as text, by problem, which must be byte-identical but for places and replayed tokens."""
    lines = [record.line() for record in read_records(folder)]
    for line in lines:
        del line["place"]
        for used in line["usage"].values():
            del used["replayed_tokens"]
    texts = {line["doc_id"]: json.dumps(line) for line in lines}
    assert len(texts) == len(lines)  # none twice
    return texts


def summarise(rows, *, seconds=None, peaks=None, **more):
    """The metrics of ``rows``."""
    metrics = measure(rows, costs={"seconds": seconds or {}, "peak_bytes": peaks or {}}, **more)
    return metrics | {"grader": {"name": "flexible"}}


def opened(folder, config, *, fresh=False, **about):
    """The store of a run of ``config``."""
    store = Store(folder, fresh=fresh)
    store.begin(build_manifest(config, about))
    return store


def stored(folder, config, results, **more):
    """A finished run in ``folder``: ``results`` are pairs of a problem and its result."""
    rows = []
    with opened(folder, config) as store:
        for place, (problem, result) in enumerate(results):
            record = Record.new(replace(problem, place=place), result, Grader())
            store.append(record)
            rows.append(grade(record, Grader(), final_rule(config)))
    write_results(folder, summarise(rows, **more), rows)
    return folder
