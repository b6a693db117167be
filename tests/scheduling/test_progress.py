"""What a run shows while it works."""

import io

import pytest

from soft_reasoning.scheduling import progress
from soft_reasoning.scheduling.progress import Progress


def test_quiet_where_there_is_no_terminal_but_for_a_line_every_so_often(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress, "perf_counter", lambda: now[0])
    stream = io.StringIO()
    with Progress(100, stream=stream) as shown:
        for second in range(60):
            now[0] += 1.0
            shown.count(50, read=True, correct=second % 10 < 9, covered=True)
            shown.work([50] * 8)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[0] == "3 right, 0 wrong, 97 open  8 in progress  550 tokens  183 tokens/s"
    assert lines[1].startswith("17 right, 1 wrong, 82 open  8 in progress  1,300 tokens  72 tokens/s  about ")
    assert "%" not in stream.getvalue()  # easy problems end first


def test_the_time_left_is_between_the_pace_and_the_mean_of_finished_problems(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress, "perf_counter", lambda: now[0])
    shown = Progress(20, enabled=False)
    now[0] = 10.0
    shown.count(100, read=True, correct=True, covered=True)
    shown.work([150] * 8)
    assert "left" not in shown.state()  # fewer than a tenth are finished
    shown.count(100, read=True, correct=True, covered=True)
    # By pace 9 x 10 s; by length 10 x 140 tokens (the mean of all that were started) at 140 tokens/s.
    assert shown.state().endswith("about 50.0 s left")


def test_replayed_tokens_and_earlier_problems_are_no_speed(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress, "perf_counter", lambda: now[0])
    shown = Progress(4, enabled=False)
    shown.count(1000, read=True, correct=None, covered=False)
    with shown:
        now[0] = 10.0
        shown.count(500, read=True, correct=None, covered=False, replayed=400)
        shown.work([100])
        assert shown.state().startswith("2 answered, 2 open  1 in progress  200 tokens  20 tokens/s")


@pytest.mark.parametrize(("answers", "warned"), [([None] * 25, True), ([None] * 19 + ["7"], False)])
def test_answers_that_cannot_be_read_are_told_at_once(answers, warned):
    stream = io.StringIO()
    shown = Progress(30, enabled=False, stream=stream)
    for answer in answers:
        shown.count(50, read=answer is not None, correct=False, covered=False)
    assert stream.getvalue().count("no answer could be read in the first 20 problems") == warned
