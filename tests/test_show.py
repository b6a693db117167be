"""``soft-reasoning show``: a run, a comparison, one problem, and what is refused."""

import json
import re
import webbrowser
from pathlib import Path

import pytest

from soft_reasoning.cli import finished, run
from soft_reasoning.lab.runs.records import read_records


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folders of a run and of a comparison."""
    folder = tmp_path_factory.mktemp("show")
    common = ["engine=fake", "progress=false", "max_new_tokens=20", "limit=3"]
    for name, options in {"one": [], "both": ["methods=[cot,self_consistency]"]}.items():
        run.main([*common, *options, f"hydra.run.dir={folder / name}"])
    return folder


def test_a_run_is_shown_and_its_page_opened(folders, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    finished.show_main([str(folders / "one")])
    output = capsys.readouterr().out
    assert "accuracy %" in output and str(folders / "one" / "report.html") in output
    assert opened == [(folders / "one" / "report.html").as_uri()]


def test_a_short_run_shows_its_answers_whose_places_name_them(folders, capsys):
    finished.show_main([str(folders / "one"), "--no-browser"])
    lines = capsys.readouterr().out.splitlines()[:3]
    for place, line in enumerate(lines):
        record = next(r for r in read_records(folders / "one") if r.problem.id == f"demo-test-{place}")
        answer = record.result.answer or "no answer"
        assert line.startswith(f"  {place}  ...") and f"  {answer} (" in line
        assert line.endswith(" (correct)" if record.exact_match else f" (wrong: {record.problem.gold})")
        finished.show_main([str(folders / "one"), str(place)])
        shown = capsys.readouterr().out
        finished.show_main([str(folders / "one"), record.problem.id])
        assert shown == capsys.readouterr().out and "votes" in shown.lower()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["one", "no-such-id"], "3 problems, a place from 0 on or an id such as demo-test-"),
        (["nowhere"], "expected the folder"),
        (["both", "--tables"], "run it to its end, or give the folder of one run"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(folders, capsys, words, message):
    with pytest.raises(SystemExit) as ended:
        finished.show_main([str(folders / words[0]), *words[1:]])
    err = capsys.readouterr().err
    assert ended.value.code == 2 and message in err and err.count("\n") == 1


FILE = """\
id,question,answer
b,Ann has 3 pens and buys 4. How many?,7 pens
a,Ann has 5 pens and buys 1. How many?,
c,Ann has 2 pens and buys 2. How many?,4
"""


def test_rows_of_a_file_keep_their_places_and_may_lack_an_answer(tmp_path, capsys):
    (tmp_path / "mine.csv").write_text(FILE)
    options = ["engine=fake", "method=cot", "progress=false", "max_new_tokens=20"]
    run.main([f"dataset={tmp_path / 'mine.csv'}", *options, f"hydra.run.dir={tmp_path / 'run'}"])
    output = capsys.readouterr().out
    assert "of 2 questions with a reference answer (1 more have none) were answered correctly" in output
    assert [line.split()[0] for line in output.splitlines()[:3]] == ["0", "1", "2"]
    [without] = [line for line in output.splitlines() if "without a reference answer" in line]
    assert without.split()[-1] == "1" and str(tmp_path / "run" / "predictions.csv") in output
    predictions = (tmp_path / "run" / "predictions.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in predictions[1:]] == ["custom-b", "custom-a", "custom-c"]

    samples = tmp_path / "run" / "samples.jsonl"  # as an unfinished run, which lacks the first problem
    lines = [line for line in samples.read_text().splitlines(True) if '"doc_id": "custom-b"' not in line]
    samples.write_text("".join(lines))
    for file in ("results.json", "grades.json"):
        (tmp_path / "run" / file).unlink()
    for name in ("1", "custom-a"):
        finished.show_main([str(tmp_path / "run"), name])
        assert "Ann has 5 pens" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        finished.show_main([str(tmp_path / "run"), "0"])
    assert "expected one of its 2 problems" in capsys.readouterr().err


def test_the_page_on_records_lists_their_fields(tmp_path, capsys):
    run.main(
        ["engine=fake", "progress=false", "max_new_tokens=20", "limit=2", f"hydra.run.dir={tmp_path / 'run'}"]
    )
    page = (Path(__file__).parents[1] / "docs" / "reports.md").read_text(encoding="utf-8")
    page = page[page.index("## The record of a problem") : page.index("## Comparisons")]
    first, second = (
        {name for line in table.splitlines() for name in re.findall("`(.*?)`", line.split("|")[1])}
        for table in re.findall(r"\| --- \| --- \|\n((?:\|.*\n)+)", page)
    )
    lines = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert {*lines[0]} == first
    assert {name for line in lines for entry in line["trace"] for name in entry} == second
