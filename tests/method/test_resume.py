"""Every method, its run cut off at any byte of what it had stored, and continued."""

import json
import shutil
from contextlib import closing

import pytest

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.cli.run import run_one
from soft_reasoning.configuration.context import build_context, build_engine
from soft_reasoning.configuration.parts import make
from soft_reasoning.configuration.registry import METHODS
from soft_reasoning.task.learnt import made_for
from soft_reasoning.task.space import TaskPoint

NAMES = [*METHODS]
QUICK = ("cot", "self_consistency", "program")


def records(folder):
    """The records by problem, without what depends on the company that a problem had and on what was stored
    before: reused and replayed tokens."""
    lines = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    for record in lines:
        for used in record["usage"].values():
            del used["cached_tokens"], used["replayed_tokens"]
    return {record["doc_id"]: record for record in lines}


def point(path):
    """Write a soft token for the fake engine to ``path``."""
    config = compose_config(["engine=fake"])
    with closing(build_engine(config)) as engine:
        fits = made_for(build_context(config, engine))
        TaskPoint(vectors=((0.1,) * engine.hidden_size,), u=(0.1,), made_for=fits).save(path)
    return path


@pytest.mark.parametrize(
    "method", [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in NAMES]
)
def test_cut_off_anywhere_and_continued(method, tmp_path):
    options = "limit=5", "max_live=2", "max_new_tokens=16", "progress=false"
    prompt = ["prompt=math"] if "program" in method or method == "mixed_consistency" else []
    learnt = [f"point={point(tmp_path / 'point.json')}"] if method == "soft_token" else []
    config = compose_config([f"method={method}", "engine=fake", *prompt, *learnt, *options])
    with closing(make(config["launcher"], "launcher")) as launcher:
        whole = tmp_path / "whole"
        run_one(config, whole, launcher)
        size = (whole / "samples.jsonl").stat().st_size
        for cut in (0, size // 3, size // 2, size - 1):
            broken = tmp_path / f"cut-{cut}"
            shutil.copytree(whole, broken)
            (broken / "results.json").unlink()
            if cut in (size // 3, size - 1):
                (broken / "completions.sqlite").unlink()
            with (broken / "samples.jsonl").open("r+b") as file:
                file.truncate(cut)
            run_one(config, broken, launcher)
            assert records(broken) == records(whole)
            assert len(records(whole)) == 5
