"""What a run shows while it works."""

import io

import pytest

from soft_reasoning.schedule import progress
from soft_reasoning.schedule.progress import Progress


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
    assert lines[0] == "3/100 problems, 3 correct, 0 wrong, 8 in progress, 550 tokens, 183 tokens/s"
    assert lines[1] == "18/100 problems, 17 correct, 1 wrong, 8 in progress, 1,300 tokens, 72 tokens/s"
    assert "%" not in stream.getvalue()  # easy problems end first


def test_replayed_tokens_and_earlier_problems_are_no_speed(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress, "perf_counter", lambda: now[0])
    shown = Progress(4, enabled=False)
    shown.count(1000, read=True, correct=None, covered=False)
    with shown:
        now[0] = 10.0
        shown.count(500, read=True, correct=None, covered=False, replayed=400)
        shown.work([100])
        assert shown.state() == "1 in progress, 200 tokens, 20 tokens/s"


def test_a_terminal_has_a_bar_over_problems_with_the_rest_after_it(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress, "perf_counter", lambda: now[0])
    stream = io.StringIO()
    stream.isatty = lambda: True
    with Progress(4, stream=stream) as shown:
        shown.count(50, read=True, correct=True, covered=True)
        now[0] = 10.0
        shown.work([50])
        shown.say("a note")
    written = stream.getvalue()
    assert "1/4 [" in written and "1 correct, 0 wrong, 1 in progress, 100 tokens" in written
    assert "a note\n" in written


@pytest.mark.parametrize(("answers", "warned"), [([None] * 25, True), ([None] * 19 + ["7"], False)])
def test_answers_that_cannot_be_read_are_told_at_once(answers, warned):
    stream = io.StringIO()
    shown = Progress(30, enabled=False, stream=stream)
    for answer in answers:
        shown.count(50, read=answer is not None, correct=False, covered=False)
    assert stream.getvalue().count("no answer could be read in the first 20 problems") == warned
