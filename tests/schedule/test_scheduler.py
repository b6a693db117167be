"""The scheduler: what it merges, what it keeps apart, and whom it blames."""

from dataclasses import replace

import pytest
import torch

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine, build_method
from soft_reasoning.method.soft_reasoning import Propose
from soft_reasoning.schedule.effects import next_logits
from soft_reasoning.schedule.job import Clock, Job, ProblemError
from soft_reasoning.schedule.method import Generate, Limits
from soft_reasoning.schedule.scheduler import Scheduler, drive
from soft_reasoning.search import SearchState
from soft_reasoning.types import Problem, Prompt, Request, Result, Usage, UserError
from tests.scripted import (
    Context,
    Engine,
    Optimiser,
    Script,
    StreamingEngine,
    StreamingFake,
    answer,
    ask,
    number,
    problems,
)


def test_a_tick_is_one_engine_call_and_each_problem_gets_its_own_answers():
    context = Context()

    def steps(problem):
        return answer((yield ask(problem, count=1 + int(problem.id) % 3)))

    results = dict((p.id, r.answer) for p, r in drive(problems(6), Script(steps), context))
    assert context.engine.generated == [1 + 2 + 3 + 1 + 2 + 3]
    assert results == {str(i): str(100 + i) for i in range(6)}


def test_a_read_of_logits_is_a_request_like_any_other():
    context = Context()

    def steps(problem):
        prompts = [Prompt((number(problem),)), Prompt((1, 1))]
        logits = yield from next_logits(prompts, (int(problem.id) % 2,) * 2, role="anchor")
        assert logits.shape == (2, 2)
        return Result(str(int(logits[0, 0])), ())

    results = {p.id: r for p, r in drive(problems(4), Script(steps), context)}
    assert context.engine.generated == [8]
    assert [results[str(i)].answer for i in range(4)] == ["100", "101", "102", "103"]
    assert results["0"].usage == {"anchor": Usage.of(1) + Usage.of(2, 1)}


@pytest.mark.parametrize("limits", [Limits(max_tokens=2), Limits(max_seconds=1e-9)])
def test_reads_end_with_the_budget_and_so_does_a_method_that_has_no_answer_by_then(limits):
    def steps(problem):
        if problem.id == "0":
            yield ask(problem)
        yield from next_logits([Prompt((5,))], (1,), role="anchor")
        return Result("a read", ())

    context = Context()
    context.limits = limits
    answers = {p.id: r.answer for p, r in drive(problems(2), Script(steps), context)}
    assert answers == {"0": None, "1": None if limits.max_seconds else "a read"}


def test_proposals_of_one_shape_and_stream_are_one_call_and_join_the_next_batch():
    context, optimiser = Context(), Optimiser()

    def steps(problem):
        n = 2 if int(problem.id) < 3 else 4
        U, y = torch.full((1, n, 5), 1.0), torch.zeros(1, n)
        value = yield Propose(optimiser, SearchState(U, y, 3, seed=0, round=1, keys=[problem.id]))
        assert value == 5.0 * n
        return answer((yield ask(problem)))

    assert len(list(drive(problems(5), Script(steps), context))) == 5
    assert optimiser.calls == [((3, 2, 5), 3, 1, ["0", "1", "2"]), ((2, 4, 5), 3, 1, ["3", "4"])]
    assert context.engine.generated == [5]


def test_usage_is_counted_by_role_and_time_by_kind():
    context, clock = Context(), Clock()

    def steps(problem):
        yield ask(problem, count=3)
        return answer((yield ask(problem, role="verifier")))

    [(_, result)] = drive(problems(1), Script(steps), context, clock=clock)
    assert result.usage == {"candidate": Usage(3, 3, 6, 3), "verifier": Usage(1, 1, 2, 1)}
    assert {*clock.seconds} == {"engine", "method"} and all(s > 0 for s in clock.seconds.values())


def test_results_do_not_depend_on_how_the_engine_completes_requests():
    """Nor on the batch and the order, as tests/method/test_batches.py has it for every method."""
    config = compose_config(["engine=fake", "max_new_tokens=30"])
    method, context = build_method(config), build_context(config, build_engine(config))
    asked = [Problem(f"p{i}", f"Ann has {i} pens and buys {i % 5}. How many?", "7") for i in range(4)]
    together, streamed = (
        {p.id: (r.answer, r.candidates, r.trace) for p, r in drive(asked, method, each)}
        for each in (context, replace(context, engine=StreamingFake()))
    )
    assert streamed == together


def test_where_the_engine_completes_piece_by_piece_no_problem_waits_for_another():
    """Problem 0's requests are done before problem 9's of the same round, which it outruns by a round."""
    engine = StreamingEngine()

    def steps(problem):
        for step in (0, 10):
            prompts = [(int(problem.id) + step, i) for i in range(3)]
            completions = yield Generate([Request(p) for p in reversed(prompts)])
            assert [c.text for c in completions] == [str(sum(p)) for p in reversed(prompts)]
        return answer(completions)

    few = [Problem(name, name) for name in ("0", "90")]
    done = [(p.id, r.answer) for p, r in drive(few, Script(steps), Context(engine))]
    assert done == [("0", "12"), ("90", "102")]
    assert engine.log.index(("in", 10)) < engine.log.index(("out", 90))
    assert engine.cancelled == 0


def test_what_a_failed_or_abandoned_drive_submitted_is_cancelled():
    engine = StreamingEngine()

    def steps(problem):
        completions = yield ask(problem)
        if problem.id == "1":
            yield Generate([Request((13,))])
        return answer(completions)

    finished = []
    with pytest.raises(ProblemError, match="problem 1: ValueError: a 13"):
        for problem, _ in drive(problems(4), Script(steps), Context(engine)):
            finished.append(problem.id)
    assert finished == ["0"] and engine.cancelled == 1 and not engine.queued

    driven = drive(problems(4), Script(steps), Context(engine))
    next(driven)
    driven.close()
    assert engine.cancelled == 2 and not engine.queued


@pytest.mark.parametrize("place", ["begin", "add", "advance", "step"])
def test_an_interruption_leaves_nothing_in_the_engine(place, monkeypatch):
    """Ctrl-C may come when the engine has done its work and the scheduler does not know it yet."""
    engine = StreamingEngine()
    work = getattr(engine, place)

    def interrupted(*values):
        work(*values)
        raise KeyboardInterrupt

    def steps(problem):
        return answer((yield ask(problem)))

    other = engine.add([Request((5,))])  # of another caller
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(engine, place, interrupted)
        list(drive(problems(3), Script(steps), Context(engine)))
    assert engine.queued.keys() <= {*other} and dict(engine.step()).keys() == {*other}
    solved = drive(problems(3), Script(steps), Context(engine))
    assert [result.answer for _, result in solved] == ["100", "101", "102"]


def test_a_result_says_what_its_first_candidate_was_asked():
    context = Context()
    tokenizer = context.engine.tokenizer
    ids = tuple(tokenizer.encode("How many? Answer:"))
    soft = torch.zeros(1, 4)

    def solved(*requests):
        def steps(problem):
            for request in requests:
                yield Generate([request])
            return Result(None, ())

        [(_, result)] = drive(problems(1), Script(steps), context)
        return result.prompt

    assert solved(Request(ids)) == ("<s>How many? Answer:",)
    assert solved(Request(ids, soft=soft, position=len(ids))) == ("<s>How many? Answer:", "")
    parts = solved(Request(ids, soft=soft, position=3))
    assert len(parts) == 2 and all(parts) and "".join(parts) == "<s>How many? Answer:"
    review = Request(tuple(tokenizer.encode("Solve")), role="verifier")
    assert solved(review) == () and solved(review, Request(ids)) == ("<s>How many? Answer:",)


class Fussy(Engine):
    """Ends requests that hold a 102 with an error."""

    def completion(self, request):
        if 102 in request.prompt_ids:
            return UserError("expected memory for a 102, and it ran out")
        return super().completion(request)


def test_a_request_that_fails_ends_its_own_problem_alone():
    def steps(problem):
        return answer((yield ask(problem, count=2)))

    context, finished = Context(Fussy()), {}
    with pytest.raises(UserError, match="^problem 2: expected memory for a 102, and it ran out$"):
        for problem, result in drive(problems(4), Script(steps), context):
            finished[problem.id] = result.answer
    assert finished == {"0": "100", "1": "101", "3": "103"}
    assert context.engine.generated == [8]


def test_what_an_engine_refuses_repeats_no_request_of_another():
    def steps(problem):
        if problem.id == "1":
            yield Generate([Request((13,))], Engine())
        return answer((yield ask(problem)))

    scheduler = Scheduler(Engine())
    first, second = jobs = [Job(p, Script(steps), Context(scheduler.engine)) for p in problems(2)]
    for job in jobs:
        scheduler.add(job)
    while scheduler.live:
        scheduler.step()
    assert first.result().answer == "100" and "a 13" in str(second.exception())
    assert scheduler.engine.generated == [1]


def test_every_step_is_told_with_the_tokens_that_unfinished_problems_have_so_far():
    prompt = Problem("p", "How many?")
    config, seen = compose_config(["engine=fake", "method=cot", "max_new_tokens=4"]), []
    method, context = build_method(config), build_context(config, build_engine(config))
    list(drive([prompt], method, context, watch=lambda written: seen.append(list(written))))
    assert seen[-1] == [] and [count for row in seen for count in row] == [0, 1, 2, 3]
