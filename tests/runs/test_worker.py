"""A worker whose callers are threads: they share batches, and results are a local run's."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from omegaconf import OmegaConf

from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.runs.local import LocalLauncher, Run, Worker
from soft_reasoning.runs.records import record_of
from soft_reasoning.scheduling.scheduler import Clock
from soft_reasoning.types import Problem, UserError
from tests.runs.world import OPTIONS, problems


def run(number, *more):
    return Run(number, OmegaConf.to_container(compose_config([*OPTIONS, *more]), resolve=True), ())


def test_threads_get_what_a_local_run_gives_in_one_run_after_another():
    worker = Worker()
    for number, more in enumerate([[], ["search.rounds=1"]]):
        config = compose_config([*OPTIONS, *more])
        local = LocalLauncher().start(config, problems(6))
        expected = {p.id: record_of(p, r, local.grader) for p, r in local.solve(problems(6), clock=Clock())}
        assert worker.begin(run(number, *more), problems(6)) == dict(local.about)
        with ThreadPoolExecutor(6) as pool:
            done = list(pool.map(lambda p: worker.solve(run(number, *more), p), problems(6)))  # noqa: B023
        assert {d.problem.id: record_of(d.problem, d.result, local.grader) for d in done} == expected
        assert done[-1].clock.generated_tokens > 0


def test_a_failing_problem_is_its_callers_and_the_worker_goes_on():
    worker = Worker()
    with pytest.raises(UserError, match="problem long: the prompt has"):
        worker.begin(run(0), [Problem("long", "pens " * 10_000)])
    with pytest.raises(Exception, match="long"):
        worker.solve(run(0), Problem("long", "pens " * 10_000))
    assert worker.solve(run(0), problems(1)[0]).problem.id == "p0"
