"""What every method must do; a test file parametrises over these.

Each function takes a method and a context, such as that of :func:`fake_context`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine
from soft_reasoning.schedule.method import Context, Limits, Method, check_method
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Problem, Result

PROBLEMS = [Problem(f"p{i}", f"What is {i} and {i + 3}?", str(2 * i + 3)) for i in range(4)]


def fake_context(*overrides: str) -> Context:
    """A context on the fake engine, with a prompt that asks for programs, too."""
    config = compose_config(["engine=fake", "prompt=math", *overrides])
    return build_context(config, build_engine(config))


def results(method: Method, context: Context, problems: Sequence[Problem] = PROBLEMS) -> dict[str, Result]:
    """Each problem's result by its id."""
    return {problem.id: result for problem, result in drive(problems, method, context)}


def written(result: Result) -> int:
    """The tokens that the model wrote for a problem."""
    return sum(usage.generated_tokens for usage in result.usage.values())


def has_a_name_and_solves_every_problem(method: Method, context: Context) -> None:
    check_method(method)
    found = results(method, context)
    assert set(found) == {problem.id for problem in PROBLEMS}
    assert all(result.candidates and written(result) for result in found.values())


def a_problem_alone_gets_the_result_that_it_gets_among_others(method: Method, context: Context) -> None:
    together = results(method, context)
    for problem in PROBLEMS:
        [alone] = results(method, context, [problem]).values()
        assert alone.answer == together[problem.id].answer
        assert alone.candidates == together[problem.id].candidates


def the_reference_answer_is_not_read(method: Method, context: Context) -> None:
    other = [replace(problem, gold="-1") for problem in PROBLEMS]
    before, after = results(method, context), results(method, context, other)
    assert all(before[name].candidates == after[name].candidates for name in before)
    assert all(before[name].answer == after[name].answer for name in before)


def it_keeps_within_its_budget(method: Method, context: Context) -> None:
    free = results(method, context)
    for most in (1, 40, min(map(written, free.values())) - 1):
        bounded = replace(context, limits=Limits(max_tokens=most))
        for name, result in results(method, bounded).items():
            assert written(result) <= min(most, written(free[name]))
    late = results(method, replace(context, limits=Limits(max_seconds=1e-4)))
    assert sum(map(written, late.values())) < sum(map(written, free.values()))
