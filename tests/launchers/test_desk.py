"""Handing problems out: everything once, small shares at the end, nothing lost with a worker."""

import heapq

import pytest

from soft_reasoning.launchers.desk import Desk
from soft_reasoning.types import Problem


def problems(n):
    return [Problem(f"p{i}", "q") for i in range(n)]


def test_shares_halve_what_waits():
    desk = Desk(problems(100), workers=2, room=16)
    assert len(desk.hand_out("a")) == 16  # room is less than 100 / 4
    desk = Desk(problems(20), workers=2, room=16)
    assert [len(desk.hand_out(w)) for w in "ab"] == [5, 4]
    assert (desk.holds("a"), desk.holds("b"), desk.left) == (5, 4, 20)


def test_room_is_filled_up_as_problems_finish():
    desk = Desk(problems(100), workers=1, room=4)
    first = desk.hand_out("a")
    assert desk.hand_out("a") == []
    assert desk.finished("a", first[2].id) is first[2]
    assert [p.id for p in desk.hand_out("a")] == ["p4"]
    assert desk.left == 99


def test_what_a_worker_held_goes_to_the_end_of_the_line():
    desk = Desk(problems(8), workers=1, room=3)
    assert [p.id for p in desk.hand_out("a")] == ["p0", "p1", "p2"]
    desk.finished("a", "p1")
    assert desk.lost("a") == 2 and desk.lost("b") == 0
    given = []
    while desk.left:
        for problem in desk.hand_out("b"):
            given.append(desk.finished("b", problem.id).id)
    assert given == ["p3", "p4", "p5", "p6", "p7", "p0", "p2"]


@pytest.mark.parametrize("seconds", [[1.0, 1.0], [1.0, 10.0], [1.0, 1.0, 1.0, 20.0]])
def test_a_slow_worker_does_not_hold_the_run(seconds):
    """Worker w takes ``seconds[w]`` for each of the problems that it holds, all at once."""
    count, room = 1000, 8
    desk = Desk(problems(count), workers=len(seconds), room=room)
    ends, done, now = [], [], 0.0

    def hand_out(w):
        for problem in desk.hand_out(w):
            heapq.heappush(ends, (now + seconds[w], w, problem.id))

    for w in range(len(seconds)):
        hand_out(w)
    while ends:
        now, w, name = heapq.heappop(ends)
        done.append(desk.finished(w, name).id)
        hand_out(w)
    assert sorted(done) == sorted(p.id for p in problems(count))
    assert now <= count / sum(room / s for s in seconds) + max(seconds) + 1
