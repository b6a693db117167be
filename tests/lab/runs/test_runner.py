"""A run from start to end: shuffled, continued, changed, interrupted; test_replayed.py kills it."""

import json
from dataclasses import replace
from unittest.mock import Mock

import pytest

from soft_reasoning.lab.reports.report import write_report
from soft_reasoning.lab.runs.files import MANIFEST, read_json
from soft_reasoning.lab.runs.records import read_records
from soft_reasoning.schedule.job import ProblemError
from soft_reasoning.types import Result, UserError
from tests.lab.runs.world import kept, parts, problems, solve


@pytest.fixture(scope="module")
def world():
    return parts()


@pytest.fixture(scope="module")
def whole(world, tmp_path_factory):
    """The folder of an undisturbed run of 12 problems."""
    method, context, config = world
    folder = tmp_path_factory.mktemp("whole")
    solve(problems(12), method, context, folder, config)
    write_report(folder)
    return folder


def test_a_run_leaves_its_whole_folder(whole, capsys):
    names = {path.name for path in whole.iterdir()}
    assert {"manifest.json", "samples.jsonl", "results.json", "report.md", "report.html"} <= names
    metrics = json.loads((whole / "results.json").read_text())
    records = list(read_records(whole))
    assert metrics["problems"] == len(records) == 12
    assert metrics["exact_match"] == pytest.approx(sum(r.exact_match for r in records) / 12)


@pytest.mark.parametrize("cache", ["run", "elsewhere"])
def test_a_run_into_a_folder_without_locks_uses_no_sqlite_there(world, tmp_path, monkeypatch, capsys, cache):
    """Such a filesystem has no locks for SQLite either, which then fails."""
    method, context, config = world
    monkeypatch.setattr(
        "soft_reasoning.lab.runs.files.fcntl.flock", Mock(side_effect=OSError(38, "No locks"))
    )
    cache = str(tmp_path / cache) if cache == "elsewhere" else cache
    finished = solve(problems(2), method, context, tmp_path / "run", config | {"cache": cache})
    assert finished["problems"] == 2 and not list((tmp_path / "run").glob("*.sqlite"))
    assert "cannot be locked (No locks)" in capsys.readouterr().err
    assert (tmp_path / "elsewhere").exists() == ("elsewhere" in cache)


def test_order_and_batch_do_not_matter(world, whole, tmp_path):
    method, context, config = world
    solve(problems(12)[::-1], method, context, tmp_path, config, max_live=5)
    assert kept(tmp_path) == kept(whole)


def test_more_problems_continue_and_fewer_are_refused(tmp_path):
    def go(limit):
        method, context, config = parts(f"limit={limit}")
        return solve(problems(limit), method, context, tmp_path, config)

    go(2)
    assert go(4)["problems"] == len(kept(tmp_path)) == 4
    with pytest.raises(UserError, match=r"problem p3, which this run lacks; raise limit.*fresh="):
        go(3)
    assert read_json(tmp_path / MANIFEST)["config"]["limit"] == 4
    assert json.loads((tmp_path / "results.json").read_text())["problems"] == 4


def test_changed_data_are_refused(world, whole):
    method, context, config = world
    first, *others = problems(12)
    with pytest.raises(UserError, match="problem p0 with another .*; restore the data.*fresh=true"):
        solve([replace(first, gold="another"), *others], method, context, whole, config)
    assert len(kept(whole)) == 12


class FailsAt:
    """Answers every question but one, at which ``error`` is raised."""

    name = "fails"

    def __init__(self, name, error):
        self.at, self.error = name, error

    def solve(self, problem, context):
        if problem.id == self.at:
            raise self.error
        return Result("3", ())
        yield


@pytest.mark.parametrize(
    ("error", "seen"), [(KeyboardInterrupt(), KeyboardInterrupt), (ValueError("x"), ProblemError)]
)
def test_what_is_finished_survives(world, tmp_path, capsys, error, seen):
    _, context, config = world
    with pytest.raises(seen):
        solve(problems(5), FailsAt("p3", error), context, tmp_path, config, max_live=1)
    assert list(kept(tmp_path)) == ["p0", "p1", "p2"]
    assert "stopped: 3 of 5 problems are stored" in capsys.readouterr().err
    solve(problems(5), FailsAt("none", error), context, tmp_path, config)
    assert len(kept(tmp_path)) == 5
