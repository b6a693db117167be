"""One thread drives the engine for callers in any thread, and for event loops."""

import gc
import os
import signal
import threading
import time
import weakref

import pytest

from soft_reasoning.schedule.engine_thread import EngineThread
from soft_reasoning.schedule.job import Job, ProblemError
from soft_reasoning.schedule.method import Generate
from soft_reasoning.types import Problem, Request, UserError
from tests.scripted import Context, Engine, Script, answer, ask, problems
from tests.waiting import wait_until


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


def steps(problem):
    return answer((yield ask(problem)))


def submitted(thread, some, method=None, check=lambda: None):
    """The jobs of a call."""
    jobs = [Job(problem, method or Script(steps), Context(thread.engine)) for problem in some]
    thread.submit(jobs, check)
    return jobs


def answers(jobs):
    return {job.problem.id: job.result().answer for job in jobs}


@pytest.fixture
def engine():
    return Slow()


@pytest.fixture
def thread(engine):
    thread = EngineThread(engine, max_live=4)
    yield thread
    thread.close()
    assert engine.closed == 1


def test_calls_share_batches_and_take_turns(thread, engine):
    first = submitted(thread, problems(1))
    assert engine.began.wait()
    long = submitted(thread, [Problem(str(i), "?") for i in range(10, 20)])
    short = submitted(thread, [Problem("2", "?")])
    wait_until(lambda: len(engine.queued) == 4)
    engine.go.set()
    assert answers(first) == {"0": "100"} and answers(short) == {"2": "102"}
    assert answers(long) == {str(i): str(100 + i) for i in range(10, 20)}
    # The short call joins the first after one problem of the long one, while the first is in progress.
    assert engine.generated == [4, 4, 4]
    assert len(engine.threads) == 1 and threading.get_ident() not in engine.threads


def test_an_error_ends_its_own_job_and_a_refused_call_all_of_its_jobs(thread, engine):
    def fails(problem):
        completions = yield ask(problem)
        if problem.id == "1":
            raise ZeroDivisionError("by hand")
        return answer(completions)

    def refused(problem):
        return answer((yield Generate([Request((13,))])))

    def refuses():
        raise UserError("expected a shorter question")

    engine.go.set()
    bad, good = submitted(thread, problems(3), Script(fails)), submitted(thread, problems(3))
    [thirteen] = submitted(thread, problems(1), Script(refused))
    checked = submitted(thread, problems(2), check=refuses)
    assert answers(good) == {str(i): str(100 + i) for i in range(3)}
    assert isinstance(bad[1].exception(), ProblemError)
    assert "problem 1: ZeroDivisionError" in str(bad[1].exception())
    assert "ValueError: a 13" in str(thirteen.exception())
    assert all("shorter" in str(job.exception()) for job in checked)


def test_cancelled_jobs_are_dropped_and_the_others_go_on(thread, engine):
    cancelled, kept = submitted(thread, problems(2)), submitted(thread, [Problem("7", "?")])
    wait_until(lambda: len(engine.queued) == 3)
    assert all(job.cancel() for job in cancelled)
    wait_until(lambda: len(engine.queued) == 1)
    engine.go.set()
    assert answers(kept) == {"7": "107"} and engine.generated == [1]


def test_close_ends_what_is_in_progress_and_tells(engine):
    thread = EngineThread(engine, max_live=2)
    jobs = submitted(thread, problems(5))
    assert engine.began.wait()
    thread.close()
    thread.close()
    assert all("closed while solving" in str(job.exception()) for job in jobs)
    assert engine.closed == 1 and not engine.queued
    with pytest.raises(UserError, match="closed"):
        submitted(thread, problems(1))


def reasoner_on(engine, monkeypatch):
    from soft_reasoning.reasoner import SoftReasoner

    monkeypatch.setattr("soft_reasoning.reasoner.build_engine", lambda *_: engine)
    return SoftReasoner.from_pretrained("demo", method=Script(steps))


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="POSIX signals")
def test_ctrl_c_ends_the_call_at_once(engine, monkeypatch):
    main = threading.get_ident()

    def press():
        engine.began.wait()
        signal.pthread_kill(main, signal.SIGINT)

    monkeypatch.setattr("soft_reasoning.reasoner.check_problems", lambda *_: None)
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


def test_a_reasoner_is_forgotten_where_its_thread_needs_a_lock_that_is_held(engine, monkeypatch):
    """The garbage collector may run anywhere, also while a lock is held that closing the engine takes."""
    monkeypatch.setattr("soft_reasoning.reasoner.check_problems", lambda *_: None)
    engine.go.set()
    lock, close = threading.Lock(), engine.close

    def close_with_the_lock():
        with lock:
            close()

    engine.close = close_with_the_lock
    reasoner = reasoner_on(engine, monkeypatch)
    reasoner.solve({"question": "?", "id": 1})
    gone = weakref.ref(reasoner)
    with lock:
        del reasoner
        gc.collect()
        assert gone() is None and not engine.closed
    wait_until(lambda: engine.closed == 1)


@pytest.mark.parametrize("ending", [SystemExit(3), KeyboardInterrupt()])
def test_a_part_that_would_end_the_process_ends_its_own_call(thread, engine, ending):
    def leaves(problem):
        yield ask(problem)
        raise ending

    engine.go.set()
    [bad] = submitted(thread, problems(1), Script(leaves))
    assert type(ending).__name__ in str(bad.exception())
    assert answers(submitted(thread, [Problem("7", "?")])) == {"7": "107"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore")
def test_a_forked_child_is_refused_in_one_line(thread, engine):
    engine.go.set()
    assert answers(submitted(thread, problems(1)))
    child = os.fork()
    if child == 0:
        try:
            submitted(thread, problems(1))
        except UserError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
