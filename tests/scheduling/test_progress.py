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
        for _ in range(60):
            now[0] += 1.0
            shown.count(50, read=True, correct=True, covered=True)
            shown.show()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[0] == "15/100 problems  accuracy 100.0 %  coverage 100.0 %  50 tokens/s  1 min 25 s left"


@pytest.mark.parametrize(("answers", "warned"), [([None] * 25, True), ([None] * 19 + ["7"], False)])
def test_answers_that_cannot_be_read_are_told_at_once(answers, warned):
    stream = io.StringIO()
    shown = Progress(30, enabled=False, stream=stream)
    for answer in answers:
        shown.count(50, read=answer is not None, correct=False, covered=False)
    assert stream.getvalue().count("no answer could be read in the first 20 problems") == warned
