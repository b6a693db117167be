"""A worker in this process: what it is given joins what it works on, and results are a run's."""

import pytest
from omegaconf import OmegaConf

from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.runs.local import LocalLauncher
from soft_reasoning.runs.records import record_of
from soft_reasoning.runs.workers import Worker
from soft_reasoning.scheduling.scheduler import Clock
from soft_reasoning.types import Problem, UserError
from tests.runs.world import OPTIONS, problems


@pytest.fixture(scope="module")
def config():
    return compose_config(OPTIONS)


def records(pairs, grader):
    return {problem.id: record_of(problem, result, grader) for problem, result in pairs}


def test_problems_join_and_get_what_a_local_run_gives_them(config, monkeypatch):
    local = LocalLauncher().start(config, problems(6))
    expected = records(local.solve(problems(6), clock=Clock()), local.grader)

    worker = Worker()
    about = worker.begin(OmegaConf.to_container(config, resolve=True), ())
    assert about == dict(local.about)
    assert worker.check(problems(6))
    engine, widths = worker._local.context.engine, []
    advance = engine.advance
    monkeypatch.setattr(engine, "advance", lambda: widths.append(len(engine.queued)) or advance())
    names = {p.id: p for p in problems(6)}
    got = [worker.work(problems(3))]
    joined = len(widths)
    got += [worker.work(problems(6)[3:]), *(worker.work(()) for _ in range(4))]
    assert worker.work(()) is None
    assert records([(names[done.doc_id], done.result) for done in got], local.grader) == expected
    assert max(widths[:joined]) == 15 and max(widths[joined:]) > 15  # five candidates a problem
    assert got[-1].clock.generated_tokens > 0


def test_prompts_that_are_too_long_are_refused(config):
    worker = Worker()
    worker.begin(OmegaConf.to_container(config, resolve=True), ())
    with pytest.raises(UserError, match="problem long: the prompt has"):
        worker.check([Problem("long", "pens " * 10_000)])
