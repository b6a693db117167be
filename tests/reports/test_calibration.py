"""Calibration: its calculations, and the command with what a run makes of its file."""

import re

import pytest

from soft_reasoning.reports.calibration import Tries, greedy_cover, held_out, recommend
from soft_reasoning.search.prior import Prior

FAKE = ["engine=fake", "embedding=gaussian", "progress=false", "max_new_tokens=20", "limit=4"]
SMALL = [
    "calibration.points=8",
    "calibration.portfolio=6",
    "calibration.tries=5",
    "calibration.sigmas=[1,2]",
    "calibration.embeddings=[]",
    "calibration.temperatures=[]",
    "dataset.split=validation",
]


def tried(answers, right=None):
    """Rows of answers, one letter each; ``right`` is every question's right letter."""
    rows = [list(row) for row in answers]
    return Tries(rows, None if right is None else [[a == right for a in row] for row in rows])


def test_shares_and_coverage():
    tries = Tries([["a", "a", "b", None]], [[False, False, True, False]])
    assert (tries.distinct, tries.unparsed, tries.useful) == ([0.5], 0.25, [[None, None, "b", None]])
    assert [tries.coverage(k) for k in (1, 2, 9)] == pytest.approx([0.25, 0.5, 1.0])
    assert tries.first(2).answers == [["a", "a"]] and tried(["a"]).coverage() is None


@pytest.mark.parametrize(
    ("answers", "right", "chosen"),
    [
        (["xxo", "xxo", "xxo", "xoo", "oox"], "x", [0, 2]),  # the second best solves nothing new
        (["aab", "ccd", "eef"], None, [0, 2]),  # every new answer counts
    ],
)
def test_each_point_solves_most_of_what_is_left(answers, right, chosen):
    assert greedy_cover(tried(answers, right).useful, 2) == chosen


def test_answers_that_could_not_be_read_are_not_wanted():
    assert greedy_cover([[None, None, "a"]] * 2, 1) == [2]


def test_held_out_coverage_is_measured_on_other_questions():
    """Every question is solved by a point of its own, which others say nothing about."""
    diagonal = tried([["x" if i == j else "o" for j in range(8)] for i in range(8)], "x")
    assert held_out(diagonal.useful, 2) == 0.0
    assert held_out(tried(["ox"] * 8, "x").useful, 1) == 1.0


def test_the_recommended_setting():
    few, more, unread = ["xaaaaaaaa"] * 20, ["xxabaaaaa"] * 20, [[*"abcd", *[None] * 5]] * 20
    value, reason = recommend({"1": tried(few, "x"), "2": tried(more, "x"), "3": tried(unread, "x")}, "1")
    assert value == "2" and "solve most" in reason
    value, reason = recommend({"1": tried(few), "2": tried(more), "3": tried(unread)}, "1")
    assert value == "2" and "distinct answers (33.3 %" in reason  # 3 has more, and too many unparsed


@pytest.mark.parametrize("right", ["x", None])
def test_the_default_is_kept_unless_another_setting_is_significantly_better(right):
    few, more = ["aaaax", "aaaaa"] * 10, ["axxab", "aaxba"] * 10
    tie = {"1": tried(few, right), "2": tried([*few[:-1], "xxxba"], right)}
    value, reason = recommend(tie, "1")
    assert value == "1" and "2, is better by" in reason and "not significantly (0.0 to" in reason
    assert recommend({"1": tried(few, right), "2": tried(more, right)}, "1")[0] == "2"
    assert recommend(tie, None)[0] == "2"


@pytest.fixture
def call(command):
    def called(*words):
        done = command(*words)
        return done.returncode, done.stdout, done.stderr

    return called


@pytest.mark.slow
def test_a_run_takes_the_portfolio_and_refuses_another_embedding_and_the_same_questions(call, tmp_path):
    code, out, err = call("calibrate", *FAKE, *SMALL, "hydra.run.dir=cal")
    assert code == 0, err
    assert "Recommended: embedding.sigma=" in out and "Portfolio: 6 of 8 points, chosen by labels" in out
    assert {path.name for path in (tmp_path / "cal").iterdir()} >= {"portfolio.json", "calibration.md"}
    prior = Prior.load(tmp_path / "cal" / "portfolio.json")
    assert len(prior.portfolio) == 6 and len(prior.questions) == 4

    use = [*FAKE, "search.prior=cal/portfolio.json", "search.rounds=0", "verifier=oracle"]
    code, out, err = call("run", *use, "hydra.run.dir=used")
    assert code == 0, err
    for change, message in [
        ("embedding.sigma=1", "the run's embedding.sigma, 1"),
        ("seed=1", "the run's embedding.seed, 1"),
        ("dataset.split=validation", "got 4 of those"),
    ]:
        code, out, err = call("run", *use, change, "hydra.run.dir=refused")
        assert code == 2 and message in err and err.count("\n") == 1


def test_without_labels_sigma_and_embedding_are_recommended_and_the_temperature_is_not(call, tmp_path):
    changes = ["calibration.embeddings=[token_simplex,gaussian]", "calibration.temperatures=[1]"]
    unlabelled = [*SMALL[:-3], *changes, "calibration.reference=answers", SMALL[-1]]
    code, out, err = call("calibrate", *FAKE, *unlabelled, "hydra.run.dir=cal")
    assert code == 0, err
    assert "Recommended: embedding.sigma=" in out and "distinct answers (" in out
    assert "Without labels no temperature is recommended" in out and "chosen without labels" in out
    report = re.sub(" +", " ", (tmp_path / "cal" / "calibration.md").read_text())
    assert "| gaussian |" in report and "| token_simplex |" in report and "Recommended: embedding=" in report


@pytest.mark.slow
def test_the_same_command_continues_and_a_smaller_portfolio_needs_no_new_tries(call, tmp_path):
    code, _, err = call("calibrate", *FAKE, *SMALL, "hydra.run.dir=cal")
    assert code == 0, err
    whole = (tmp_path / "cal" / "portfolio.json").read_bytes()
    samples = tmp_path / "cal" / "tries" / "samples.jsonl"
    lines = samples.read_bytes().splitlines(keepends=True)
    samples.write_bytes(b"".join(lines[:2]))
    code, _, err = call("calibrate", *FAKE, *SMALL, "hydra.run.dir=cal")
    assert code == 0 and "2 of 4 problems are done" in err
    assert samples.read_bytes().splitlines(keepends=True)[:2] == lines[:2]
    assert (tmp_path / "cal" / "portfolio.json").read_bytes() == whole
    fewer = [change.replace("portfolio=6", "portfolio=2") for change in SMALL]
    code, _, err = call("calibrate", *FAKE, *fewer, "hydra.run.dir=cal")
    assert code == 0 and "4 of 4 problems are done" in err
    assert len(Prior.load(tmp_path / "cal" / "portfolio.json").portfolio) == 2
    other = [change.replace("sigmas=[1,2]", "sigmas=[1,3]") for change in SMALL]
    code, _, err = call("calibrate", *FAKE, *other, "hydra.run.dir=cal")
    assert code == 2 and "calibration.sigmas" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("calibration.points=3", "calibration.points: expected a whole number of at least 5"),
        ("calibration.portfolio=99", "calibration.portfolio: expected a whole number of at most 8, got 99"),
        ("calibration.reference=votes", "calibration.reference: expected one of auto, answers"),
        ("calibration.sigmas=2", "calibration.sigmas: expected a list in brackets"),
        ("calibration.embeddings=[nope]", "calibration.embeddings: expected one of gaussian, token_simplex"),
        ("calibration.embeddings=gaussian", "calibration.embeddings: expected a list in brackets"),
        ("calibration.temperatures=[0]", "calibration.temperatures: expected a finite number above 0"),
        ("method=cot", "expected a method that searches, got method=cot"),
    ],
)
def test_bad_input_gives_one_line(call, argument, message):
    changes = [override for override in SMALL if override.split("=")[0] != argument.split("=")[0]]
    if "portfolio" in argument:
        changes = SMALL
    fake = [override for override in FAKE if argument != "method=cot" or not override.startswith("embedding")]
    code, _, err = call("calibrate", *fake, *changes, argument)
    assert code == 2 and message in err and err.count("\n") == 1


def test_a_temperature_is_named_with_its_method_its_interval_and_its_ties(call):
    changes = ["calibration.embeddings=[]", "calibration.temperatures=[0.5,1]"]
    code, out, err = call("calibrate", *FAKE, *SMALL[:-3], *changes, SMALL[-1], "hydra.run.dir=cal")
    assert code == 0, err
    assert "Only 4 questions: differences may be chance; raise limit to 30 or more." in out
    assert "of sampling without a soft token (method=self_consistency), because" in out
    assert "after a soft token (the search)" in out and "95 % interval" in out


def test_values_not_significantly_worse_than_the_best_are_a_tie():
    settings = {name: tried(["aaaaa", "bbbbb"] * 10, "a") for name in ("0.6", "1")}
    assert "not significantly better than 1" in recommend(settings, None)[1]
