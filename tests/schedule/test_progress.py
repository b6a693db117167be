"""What a run shows while it works."""

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from soft_reasoning.schedule import progress
from soft_reasoning.schedule.progress import Progress


def shown(stream, every, monkeypatch):
    """What ten problems print, of which one is wrong; two were done before."""
    monkeypatch.setattr(progress, "EVERY", every)
    monkeypatch.setattr(progress, "REDRAW", every)
    display = Progress(100, stream=stream)
    for _ in range(2):
        display.count(1000, read=True, correct=True, replayed=400)
    with display:
        for number in range(10):
            display.count(50, read=True, correct=number > 0, replayed=20)
            display.work([50] * 8)
        display.say("a note")


def test_a_log_has_a_line_every_so_often_with_the_time_that_is_left(monkeypatch):
    for every, count in ((0.0, 10), (1000.0, 0)):
        stream = io.StringIO()
        shown(stream, every, monkeypatch)
        *lines, note = stream.getvalue().splitlines()
        assert len(lines) == count and note == "a note" and "\r" not in stream.getvalue()
        if lines:
            assert "| 12/100 [" in lines[-1] and "<" in lines[-1]
            assert "11 correct, 1 wrong, 8 in progress, 700 tokens, " in lines[-1], "without replayed tokens"


@pytest.mark.parametrize("size", [(0, 0), (24, 200)], ids=str)
def test_a_terminal_of_any_size_has_a_bar(monkeypatch, size):
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    with open(follower, "w") as stream, open(leader, "rb", buffering=0) as written:
        shown(stream, 0.0, monkeypatch)
        os.set_blocking(leader, False)
        text = written.read().decode()
    assert "a note\r\n" in text
    assert "12/100 [" in text and "11 correct, 1 wrong, 8 in progress, 700 tokens" in text


def test_the_command_line_in_a_pipe_has_lines_though_it_disables_the_bars_of_libraries(tmp_path):
    script = (
        "from soft_reasoning.schedule import progress; progress.EVERY = 0.0\n"
        "import sys; from soft_reasoning.cli.main import main\n"
        "sys.argv[1:] = ['run', 'engine=fake', 'method=cot', 'limit=2', 'max_new_tokens=9', "
        f"'hydra.run.dir={tmp_path}']; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "| 1/2 [" in done.stderr and "1 in progress" in done.stderr


def test_no_problem_is_in_progress_when_all_are_done(monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    stream = io.StringIO()
    with Progress(2, stream=stream) as display:
        display.work([5, 5])
        display.count(50, read=True, correct=True)
        display.show()
        display.work([60])
        display.count(60, read=True, correct=False)
        display.show()
    assert "1 correct, 1 wrong, 0 in progress" in stream.getvalue().splitlines()[-1]


def test_the_time_that_is_left_follows_from_the_whole_run(monkeypatch):
    """Also where problems end more rarely than lines are drawn."""
    monkeypatch.setattr(progress, "EVERY", 0.0)
    stream, clock = io.StringIO(), [0.0]
    with Progress(4, stream=stream) as display:
        display._bar.start_t, display._bar._time = 0.0, lambda: clock[0]
        display._bar.last_print_t = 0.0
        for second in range(1, 61):
            clock[0] = float(second)
            if second == 60:
                display.count(50, read=True, correct=True)
            display.show()
    assert "1/4 [01:00<03:00," in stream.getvalue().splitlines()[-1]


@pytest.mark.parametrize(("answers", "warned"), [([None] * 25, True), ([None] * 19 + ["7"], False)])
def test_answers_that_cannot_be_read_are_told_at_once(answers, warned):
    stream = io.StringIO()
    display = Progress(30, enabled=False, stream=stream)
    for answer in answers:
        display.count(50, read=answer is not None, correct=False)
    assert stream.getvalue().count("no answer could be read in the first 20 problems") == warned
