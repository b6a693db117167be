"""Effects that a user defines."""

from dataclasses import dataclass

import pytest

from soft_reasoning.schedule import effects
from soft_reasoning.schedule.effects import Submitted, answers
from soft_reasoning.schedule.job import ProblemError
from soft_reasoning.schedule.method import Effect
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Request, Result, Usage
from tests.scripted import Context, Script, number, problems


@dataclass(frozen=True)
class Parity(Effect):
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Doubled(Effect):
    request: Request


def test_an_effect_of_ones_own_is_a_class_and_a_function(monkeypatch):
    """As a user's module has it: the scheduler answers it in batches, at once or by what the engine does."""
    monkeypatch.setattr("soft_reasoning.schedule.effects._HANDLERS", dict(effects._HANDLERS))
    batches = []

    @answers(Parity)
    def parity(asked, engine):
        batches.append([job.problem.id for job in asked])
        if any(13 in job.effect.numbers for job in asked):
            raise ValueError("a 13")
        for job in asked:
            job.count("parity", Usage.of(len(job.effect.numbers)))
        return [sum(job.effect.numbers) % 2 for job in asked]

    @answers(Doubled)
    def doubled(asked, engine):
        tickets = engine.add([job.effect.request for job in asked])
        return [Submitted([ticket], lambda done: 2 * int(done[0].text)) for ticket in tickets]

    def steps(problem):
        odd = yield Parity((number(problem), 2))
        total = yield Doubled(Request((number(problem),)))
        return Result(f"{odd} {total}", ())

    context = Context()
    results = {p.id: r for p, r in drive(problems(3), Script(steps), context)}
    assert [results[str(i)].answer for i in range(3)] == ["0 200", "1 202", "0 204"]
    assert batches == [["0", "1", "2"]] and context.engine.generated == [3]
    assert results["0"].usage == {"parity": Usage.of(2)}

    with pytest.raises(ValueError, match="got Parity, which has one"):
        answers(Parity)(parity)

    def odd_id(problem):
        return Result(str((yield Parity((12 + int(problem.id),)))), ())

    finished = []
    with pytest.raises(ProblemError, match="problem 1: ValueError: a 13"):
        finished.extend(problem.id for problem, _ in drive(problems(3), Script(odd_id), context))
