"""Every problem is assigned once, the last shares are small, and a dead worker loses none."""

import heapq

import pytest

from soft_reasoning.runs.workers import WorkQueue
from soft_reasoning.types import Problem


def problems(n):
    return [Problem(f"p{i}", "q") for i in range(n)]


def test_shares_are_half_of_the_waiting_problems():
    queue = WorkQueue(problems(100), workers=2, room=16)
    assert len(queue.assign("a")) == 16  # room is less than 100 / 4
    queue = WorkQueue(problems(20), workers=2, room=16)
    assert [len(queue.assign(w)) for w in "ab"] == [5, 4]
    assert (queue.assigned("a"), queue.assigned("b"), queue.unfinished) == (5, 4, 20)


def test_room_is_filled_up_as_problems_finish():
    queue = WorkQueue(problems(100), workers=1, room=4)
    first = queue.assign("a")
    assert queue.assign("a") == []
    assert queue.finish("a", first[2].id) is first[2]
    assert [p.id for p in queue.assign("a")] == ["p4"]
    assert queue.unfinished == 99


def test_problems_of_a_dead_worker_go_to_the_end_of_the_queue():
    queue = WorkQueue(problems(8), workers=1, room=3)
    assert [p.id for p in queue.assign("a")] == ["p0", "p1", "p2"]
    queue.finish("a", "p1")
    assert queue.requeue("a") == 2 and queue.requeue("b") == 0
    given = []
    while queue.unfinished:
        for problem in queue.assign("b"):
            given.append(queue.finish("b", problem.id).id)
    assert given == ["p3", "p4", "p5", "p6", "p7", "p0", "p2"]


@pytest.mark.parametrize("seconds", [[1.0, 1.0], [1.0, 10.0], [1.0, 1.0, 1.0, 20.0]])
def test_a_slow_worker_does_not_hold_the_run(seconds):
    """Worker w takes ``seconds[w]`` for each of the problems that it has, all at once."""
    count, room = 1000, 8
    queue = WorkQueue(problems(count), workers=len(seconds), room=room)
    ends, done, now = [], [], 0.0

    def assign(w):
        for problem in queue.assign(w):
            heapq.heappush(ends, (now + seconds[w], w, problem.id))

    for w in range(len(seconds)):
        assign(w)
    while ends:
        now, w, name = heapq.heappop(ends)
        done.append(queue.finish(w, name).id)
        assign(w)
    assert sorted(done) == sorted(p.id for p in problems(count))
    assert now <= count / sum(room / s for s in seconds) + max(seconds) + 1
