"""One thread drives the engine for callers in any thread, and for event loops."""

import gc
import os
import signal
import threading
import time
import weakref
from queue import SimpleQueue

import pytest

from soft_reasoning.scheduling.job import ProblemError
from soft_reasoning.scheduling.worker import Call, Worker
from soft_reasoning.types import Generate, Problem, Request, Result, UserError
from tests.scripted import Context, Engine, Script, answer, ask, problems


class Slow(Engine):
    """Takes steps that complete nothing until ``go`` is set."""

    def __init__(self):
        super().__init__()
        self.go, self.began, self.closed = threading.Event(), threading.Event(), 0
        self.threads = set()

    def advance(self):
        self.threads.add(threading.get_ident())
        self.began.set()
        if not self.go.is_set():
            time.sleep(0.001)
            return []
        return super().advance()

    def close(self):
        self.closed += 1


def wait_until(holds):
    ends = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.001)


def steps(problem):
    return answer((yield ask(problem)))


def call_of(some, engine, method=None, check=lambda: None):
    updates = SimpleQueue()
    method = method or Script(steps)
    return Call(some, method, Context(engine), check, updates.put), updates


def answers(updates, count):
    return {problem.id: result.answer for problem, result in (updates.get(timeout=20) for _ in range(count))}


@pytest.fixture
def engine():
    return Slow()


@pytest.fixture
def worker(engine):
    worker = Worker(engine, max_live=4)
    yield worker
    worker.close()
    assert engine.closed == 1


def test_calls_share_batches_and_take_turns(worker, engine):
    first, updates = call_of(problems(1), engine)
    worker.submit(first)
    assert engine.began.wait(20)
    long, of_long = call_of([Problem(str(i), "?") for i in range(10, 20)], engine)
    short, of_short = call_of([Problem("2", "?")], engine)
    worker.submit(long)
    worker.submit(short)
    wait_until(lambda: len(engine.queued) == 4)
    engine.go.set()
    assert answers(updates, 1) == {"0": "100"} and answers(of_short, 1) == {"2": "102"}
    assert answers(of_long, 10) == {str(i): str(100 + i) for i in range(10, 20)}
    # The short call joins the first after one problem of the long one, while the first is in work.
    assert engine.generated == [4, 4, 4]
    assert len(engine.threads) == 1 and threading.get_ident() not in engine.threads


def test_an_error_reaches_its_caller_alone(worker, engine):
    def fails(problem):
        completions = yield ask(problem)
        if problem.id == "1":
            raise ZeroDivisionError("by hand")
        return answer(completions)

    def refused(problem):
        return answer((yield Generate([Request((13,))])))

    good, updates = call_of(problems(3), engine)
    bad, of_bad = call_of(problems(3), engine, Script(fails))
    thirteen, of_thirteen = call_of(problems(1), engine, Script(refused))
    engine.go.set()
    for one in (bad, good, thirteen):
        worker.submit(one)
    assert answers(updates, 3) == {str(i): str(100 + i) for i in range(3)}
    found = [of_bad.get(timeout=20)]
    while found[-1][0] is not None:
        found.append(of_bad.get(timeout=20))
    assert isinstance(found[-1][1], ProblemError) and "problem 1: ZeroDivisionError" in str(found[-1][1])
    assert "ValueError: a 13" in str(of_thirteen.get(timeout=20)[1])

    def refuses():
        raise UserError("expected a shorter question")

    checked, of_checked = call_of(problems(1), engine, check=refuses)
    worker.submit(checked)
    assert "shorter" in str(of_checked.get(timeout=20)[1])


def test_a_cancelled_call_is_dropped_and_the_others_go_on(worker, engine):
    cancelled, of_cancelled = call_of(problems(2), engine)
    kept, of_kept = call_of([Problem("7", "?")], engine)
    worker.submit(cancelled)
    worker.submit(kept)
    wait_until(lambda: len(engine.queued) == 3)
    worker.cancel(cancelled)
    wait_until(lambda: len(engine.queued) == 1)
    engine.go.set()
    assert answers(of_kept, 1) == {"7": "107"} and of_cancelled.empty()
    assert engine.generated == [1]


def test_close_ends_what_is_in_work_and_tells(engine):
    worker = Worker(engine, max_live=2)
    call, updates = call_of(problems(5), engine)
    worker.submit(call)
    assert engine.began.wait(20)
    worker.close()
    worker.close()
    assert "closed while solving" in str(updates.get(timeout=20)[1]) and updates.empty()
    assert engine.closed == 1 and not engine.queued
    with pytest.raises(UserError, match="closed"):
        worker.submit(call)


def reasoner_on(engine, monkeypatch):
    from soft_reasoning.api import SoftReasoner

    monkeypatch.setattr("soft_reasoning.api.build_engine", lambda config: engine)
    return SoftReasoner.from_pretrained("demo", method=Script(steps))


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="POSIX signals")
def test_ctrl_c_ends_the_call_at_once(engine, monkeypatch):
    main = threading.get_ident()

    def press():
        engine.began.wait(20)
        signal.pthread_kill(main, signal.SIGINT)

    monkeypatch.setattr("soft_reasoning.configuration.parts.check_lengths", lambda *_: None)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    with reasoner_on(engine, monkeypatch) as reasoner:
        threading.Thread(target=press).start()
        try:
            with pytest.raises(KeyboardInterrupt):
                reasoner.solve({"question": "?", "id": 1})
        finally:
            signal.signal(signal.SIGINT, before)
        wait_until(lambda: not engine.queued)
        engine.go.set()
        assert reasoner.solve({"question": "?", "id": 1}).answer == "101"


def test_a_reasoner_that_is_forgotten_is_closed(engine, monkeypatch):
    monkeypatch.setattr("soft_reasoning.configuration.parts.check_lengths", lambda *_: None)
    engine.go.set()
    reasoner = reasoner_on(engine, monkeypatch)
    reasoner.solve({"question": "?", "id": 1})
    gone = weakref.ref(reasoner)
    del reasoner
    gc.collect()
    assert gone() is None and engine.closed == 1


@pytest.mark.parametrize("ending", [SystemExit(3), KeyboardInterrupt()])
def test_a_part_that_would_end_the_process_ends_its_own_call(worker, engine, ending):
    def leaves(problem):
        yield ask(problem)
        raise ending

    engine.go.set()
    bad, of_bad = call_of(problems(1), engine, Script(leaves))
    good, of_good = call_of([Problem("7", "?")], engine)
    worker.submit(bad)
    worker.submit(good)
    assert type(ending).__name__ in str(of_bad.get(timeout=20)[1])
    assert answers(of_good, 1) == {"7": "107"}


class Short:
    name = "short"

    def solve(self, problem):
        yield ask(problem)


class Plain:
    name = "plain"

    def solve(self, problem, context):
        return Result(None, ())


@pytest.mark.parametrize("method", [Short(), Script, Plain(), object()])
def test_a_method_that_is_none_is_refused_and_no_call_hangs(worker, engine, method):
    engine.go.set()
    bad, updates = call_of(problems(2), engine, method)
    worker.submit(bad)
    message = str(updates.get(timeout=20)[1])
    assert "method: expected" in message and "solve(problem, context)" in message
    assert len(message.splitlines()) == 1
    good, of_good = call_of(problems(1), engine)
    worker.submit(good)
    assert answers(of_good, 1) == {"0": "100"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore")
def test_a_forked_child_is_refused_in_one_line(worker, engine):
    engine.go.set()
    call, updates = call_of(problems(1), engine)
    worker.submit(call)
    assert answers(updates, 1)
    child = os.fork()
    if child == 0:
        try:
            worker.submit(call)
        except UserError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
