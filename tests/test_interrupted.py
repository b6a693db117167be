"""A run of 660 problems, the grader's worker killed once, then the run itself, then continued."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from soft_reasoning.commands import run as program
from soft_reasoning.reports import plots

COUNT = 660
KEPT = ("answer", "exact_match", "resps", "candidates")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the worker in /proc"),
]


@pytest.fixture
def rows(tmp_path):
    """Every third answer can be compared by the worker alone."""
    pytest.importorskip("math_verify", reason="the math extra is not installed")
    file = tmp_path / "rows.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        for i in range(COUNT):
            gold = str(i % 21) if i % 3 else f"\\sqrt{{{(i % 21) ** 2}}} + {i} - {i}"
            lines.write(json.dumps({"question": f"What is row {i}?", "answer": gold}) + "\n")
    return file


def command(rows, folder):
    return [
        "soft_reasoning.run", "engine=fake", "dataset=custom", f"dataset.path={rows}",
        "dataset.answer_type=latex", "prompt=latex", "method=cot", "max_live=8", "progress=false",
        f"hydra.run.dir={folder}",
    ]  # fmt: skip


def records(folder):
    found = (folder / "samples.jsonl").read_bytes() if (folder / "samples.jsonl").exists() else b""
    return [json.loads(line) for line in found.splitlines(keepends=True) if line.endswith(b"\n")]


def worker_of(process):
    """The process id of the grader's worker; None where it has none now."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == process.pid and "latex_worker" in (entry / "cmdline").read_text():
                return int(entry.name)
        except OSError:
            continue  # it has ended meanwhile
    return None


def wait_until(process, true):
    deadline = time.monotonic() + 300
    while not (found := true()):
        assert process.poll() is None, "the run ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def kept(folder):
    return {record["doc_id"]: json.dumps([record[key] for key in KEPT]) for record in records(folder)}


def test_killed_twice_and_continued_loses_nothing(rows, tmp_path, monkeypatch):
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    process = subprocess.Popen([sys.executable, "-m", *command(rows, broken)], cwd=tmp_path)
    first = wait_until(process, lambda: len(records(broken)) >= 50 and worker_of(process))
    os.kill(first, signal.SIGKILL)
    wait_until(process, lambda: worker_of(process) not in (None, first))
    found = len(records(broken))
    wait_until(process, lambda: len(records(broken)) >= found + 50)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = kept(broken)
    assert 100 <= len(before) < COUNT

    monkeypatch.setattr(plots, "available", lambda: False)
    for folder in (broken, whole):
        monkeypatch.setattr(sys, "argv", command(rows, folder))
        program.main()
    assert len(records(broken)) == COUNT and kept(broken) == kept(whole)
    assert before.items() <= kept(broken).items()
    results = [json.loads((folder / "results.json").read_text()) for folder in (broken, whole)]
    assert all(one["problems"] == COUNT for one in results)
    assert results[0]["exact_match"] == results[1]["exact_match"] > 0
    assert any(r["exact_match"] for r in records(broken) if "sqrt" in r["target"])
