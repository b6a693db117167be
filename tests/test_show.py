"""``soft-reasoning show``: a run, a comparison, one problem, and what is refused."""

import webbrowser

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
        (["one", "no-such-id"], "a place from 0 to 2 or an id such as demo-test-"),
        (["nowhere"], "expected the folder"),
        (["both", "--tables"], "run it to its end, or give the folder of one run"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(folders, capsys, words, message):
    with pytest.raises(SystemExit) as ended:
        finished.show_main([str(folders / words[0]), *words[1:]])
    err = capsys.readouterr().err
    assert ended.value.code == 2 and message in err and err.count("\n") == 1
