"""soft-reasoning regrade: a finished run graded again, without a model."""

import json

import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.cli.finished import regrade_main
from soft_reasoning.lab.reports import plots
from soft_reasoning.lab.reports.report import summary, write_report
from soft_reasoning.lab.runs.grading import grade
from soft_reasoning.lab.runs.records import Record
from soft_reasoning.lab.runs.runner import write_results
from soft_reasoning.types import Candidate, Problem, Result, UserError
from tests.lab.runs.world import opened, summarise

OWN = {
    "_target_": "soft_reasoning.answers.Grader",
    "absolute": 1e-3,
    "relative": 1e-6,
    "extraction": "flexible",
}
TEXTS = ["Answer: 3", "Answer: 3.005", "so it is 3", "Answer: 4"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A finished run of four problems with the gold answer 3, and the record of a fifth without a grade."""
    monkeypatch.setattr(plots, "available", lambda: False)
    config, rows = {"method": {"name": "cot"}, "dataset": {"name": "x"}, "grader": OWN}, []
    with opened(tmp_path / "a=1", config) as store:
        for i, text in enumerate([*TEXTS, "Answer: 3"]):
            answer = Grader().extract(text, "number")
            problem = Problem(f"p{i}", "How many?", "3", place=i)
            record = Record.new(problem, Result(answer, (Candidate(text, answer, 0),)), Grader())
            store.append(record)
            rows.append(grade(record, Grader()))
            store.add_costs({"engine": 1.0, "total": 2.0}, {"kv": i})
    measured = summarise(rows[:4], seconds={"engine": 4.0, "total": 8.0}, peaks={"kv": 3})
    write_results(store.folder, measured, rows[:4])
    write_report(store.folder)
    return store.folder


def call(capsys, *arguments):
    """(exit code, standard output, standard error)"""
    capsys.readouterr()
    try:
        regrade_main([str(argument) for argument in arguments])
        code = 0
    except SystemExit as stop:
        code = stop.code
    return (code, *capsys.readouterr())


def results(folder):
    return json.loads((folder / "results.json").read_text())


def test_grades_of_another_version_are_computed_anew(folder, capsys):
    path = folder / "grades.json"
    before = path.read_text()
    path.write_text(before.replace('"covered"', '"found"'))
    with pytest.raises(UserError, match=r"grades.json: expected the grades of this version.*regrade"):
        summary(folder)
    assert call(capsys, folder)[0] == 0 and path.read_text() == before


@pytest.mark.parametrize(
    ("changes", "accuracy", "unparsed"),
    [
        ([], 2 / 4, 0),
        (["grader.absolute=0.01"], 3 / 4, 0),
        (["grader.extraction=strict", "grader.absolute=0.01", "grader.relative=0"], 2 / 4, 1 / 4),
    ],
)
def test_grades_are_computed_anew(folder, capsys, changes, accuracy, unparsed):
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    code, out, _ = call(capsys, folder, *changes)
    assert code == 0 and f"{100 * accuracy:.1f} (" in out and "report.html" in out
    read = "no answer (wrong: 3)" if "grader.extraction=strict" in changes else "3 (correct)"
    assert f"  2  How many?  {read}\n" in out
    now = results(folder)
    assert (now["problems"], now["exact_match"], now["unparsed"]) == (4, accuracy, unparsed)
    grades = json.loads((folder / "grades.json").read_text())
    assert sum(row["correct"] for row in grades.values()) == 4 * accuracy
    for change in changes:
        key, value = change.removeprefix("grader.").split("=")
        assert str(now["grader"][key]) == value and f"{key}={value}" in (folder / "report.md").read_text()
    for name in ("samples.jsonl", "manifest.json"):
        assert (folder / name).read_bytes() == before[name]
    if not changes:
        call(capsys, folder)
        assert results(folder) == json.loads(before["results.json"]) | {"grader": now["grader"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("grader.extraction=lenient", "grader.extraction: expected one of flexible, strict, got 'lenient'"),
        ("grader=best", "grader: expected one of default, lm_eval_flexible, lm_eval_strict, mat"),
    ],
)
def test_bad_changes_are_one_line_and_change_nothing(folder, capsys, change, message):
    before = (folder / "results.json").read_bytes()
    code, _, err = call(capsys, folder, change)
    assert code == 2 and len(err.strip().splitlines()) == 1 and message in err
    assert (folder / "results.json").read_bytes() == before


@pytest.mark.parametrize(
    "grader",
    [
        {"_target_": "soft_reasoning.cli.finished.Path", "_args_": ["x"]},
        OWN | {"same": "os.system"},
        3,
    ],
)
def test_a_run_folder_names_no_code(folder, capsys, grader):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["config"]["grader"] = grader
    path.write_text(json.dumps(manifest))
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    code, _, err = call(capsys, folder)
    assert code == 2 and len(err.strip().splitlines()) == 1 and "manifest.json: grader: expected" in err
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert call(capsys, folder, "grader=default")[0] == 0


@pytest.mark.parametrize(
    ("name", "accuracy", "unparsed"),
    [("lm_eval_strict", 0, 1), ("released", 2 / 4, 1 / 4)],
)
def test_another_grader_by_name(folder, capsys, name, accuracy, unparsed):
    code, _, _ = call(capsys, folder, f"grader={name}")
    now = results(folder)
    assert code == 0 and now["grader"]["name"] == name
    assert (now["exact_match"], now["unparsed"]) == (accuracy, unparsed)
    assert f"name={name}" in (folder / "report.md").read_text()
