"""Calibration: its calculations, and the command with what a run makes of its file."""

import math
import re

import pytest
import torch

from soft_reasoning.commands.trials import SHOWN, ranked
from soft_reasoning.configuration.build import (
    build_context,
    build_dataset,
    build_engine,
    build_method,
    check_fits,
    check_problems,
)
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.reports.calibration import Tried, choose, foreseen, held_out, recommend
from soft_reasoning.search.prior import Prior
from soft_reasoning.types import UserError

FAKE = ["engine=fake", "embedding=gaussian", "progress=false", "max_new_tokens=20", "limit=4"]
SMALL = [
    "calibration.points=8", "calibration.portfolio=6", "calibration.tries=5", "calibration.sigmas=[1,2]",
    "calibration.features=[]", "calibration.embeddings=[]", "calibration.temperatures=[]",
    "dataset.split=validation",
]  # fmt: skip


def tried(answers, right):
    rows = [list(row) for row in answers]
    return Tried(rows, [[1.0] * len(row) for row in rows], [[a == right for a in row] for row in rows])


def test_shares_and_coverage():
    one = Tried([["a", "a", "b", None]], [[0.5, 1.0, 0.5, 1.0]], [[False, False, True, False]])
    assert (one.distinct, one.unparsed, one.mean_coherence) == (0.5, 0.25, 0.75)
    assert [one.coverage(k) for k in (1, 2, 9)] == pytest.approx([0.25, 0.5, 1.0])
    assert one.worth_of(False) == [[0.5, 0.5, 0.25, 0.0]]
    assert one.first(2).answers == [["a", "a"]] and Tried([["a"]], [[1.0]], None).coverage() is None


def test_each_point_solves_most_of_what_is_left():
    """The second best point solves nothing new beside the best."""
    one = tried(["xxo", "xxo", "xxo", "xoo", "oox"], "x")
    assert choose(one, one.wanted(labels=True), 2) == [0, 2]


def test_without_labels_every_new_answer_counts():
    one = tried(["aab", "ccd", "eef"], "none of them")
    assert choose(one, one.wanted(labels=False), 2) == [0, 2]
    assert one.wanted(labels=False)[0] == {"a", "b"}
    unread = Tried([[None, None, "a"]] * 2, [[1.0] * 3] * 2, None)
    assert choose(unread, unread.wanted(labels=False), 1) == [2]


def test_held_out_coverage_is_measured_on_other_questions():
    """Every question is solved by a point of its own, which others say nothing about."""
    own = [["x" if i == j else "o" for j in range(8)] for i in range(8)]
    one = tried(own, "x")
    assert held_out(one, one.wanted(labels=True), 2) == [0.0, 0.0]
    same = tried(["ox"] * 8, "x")
    assert held_out(same, same.wanted(labels=True), 1) == [1.0]


def test_the_recommended_setting():
    settings = {
        1.0: tried(["xaaaaaaaa"], "x"),
        2.0: tried(["xxabaaaaa"], "x"),
        3.0: Tried([["a", "b", "c", "d", *[None] * 5]], [[1.0] * 9], [[False] * 9]),
    }
    value, reason = recommend(settings, labels=True)
    assert value == 2.0 and "solve most" in reason
    value, reason = recommend(settings, labels=False)
    assert value == 2.0 and "distinct answers (33.3 %" in reason  # 3 has more, and too many unparsed


@pytest.mark.parametrize("labels", [True, False])
def test_the_default_is_kept_unless_another_setting_is_better_beyond_chance(labels):
    few, more = ["aaaax", "aaaaa"] * 10, ["axxab", "aaxba"] * 10
    tie = {1.0: tried(few, "x"), 2.0: tried([*few[:-1], "xxxba"], "x")}
    value, reason = recommend(tie, labels, default=1.0)
    assert value == 1.0 and "2, is better by" in reason and "within chance (0.0 to" in reason
    assert recommend({1.0: tried(few, "x"), 2.0: tried(more, "x")}, labels, default=1.0)[0] == 2.0
    assert recommend(tie, labels)[0] == 2.0


def test_pairs_are_ranked_and_ties_count_half():
    worth = torch.tensor([1.0, 0.0, 0.0, 1.0])
    assert ranked(worth, worth) == 1.0 and ranked(-worth, worth) == 0.0
    assert ranked(torch.zeros(4), worth) == 0.5
    assert ranked(torch.tensor([3.0, 2.0, 1.0, 0.0]), worth) == 0.5
    assert math.isnan(ranked(worth, torch.ones(4)))


def test_the_features_that_foresee_are_recommended():
    blind = [(0.5, 0.5), (0.45, math.nan), (0.55, 0.5)] * 10
    sees = [(0.9, 0.5), (0.7, math.nan), (math.nan, math.nan)] * 10
    one, advice = foreseen({"point": blind, "next_token": sees}, 10)
    assert one.rows == [("point", "50.0", "50.0"), ("next_token", "80.0", "50.0")]
    assert "candidate_points=pool surrogate=features features=next_token" in advice
    assert "no features rank" in foreseen({"point": blind, "hidden_state": blind}, 10)[1]
    assert "features=point, the default" in foreseen({"point": sees, "hidden_state": blind}, 10)[1]
    assert "no features rank" in foreseen({"point": [(math.nan, math.nan)]}, 10)[1]


@pytest.fixture
def call(command):
    def called(*words):
        done = command(*words)
        return done.returncode, done.stdout, done.stderr

    return called


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
    for change, said in [
        ("embedding.sigma=1", "the run's embedding.sigma, 1"),
        ("seed=1", "the run's embedding.seed, 1"),
        ("dataset.split=validation", "got 4 of those"),
    ]:
        code, out, err = call("run", *use, change, "hydra.run.dir=refused")
        assert code == 2 and said in err and err.count("\n") == 1


def test_a_final_rule_is_learned_from_runs_and_refused_for_another_prompt(call, tmp_path):
    run = [
        *FAKE[:1],
        *FAKE[2:],
        "method=verified_sampling",
        "dataset.offset=100",
        "search.candidates=9",
        "limit=40",
    ]
    code, _, err = call("run", *run, "hydra.run.dir=labelled")
    assert code == 0, err
    code, out, err = call("calibrate", *FAKE, *SMALL, "calibration.runs=[labelled]", "hydra.run.dir=cal")
    assert code == 0, err
    assert "Final rule: right on" in out and "of 40 problems that it was not fitted to" in out
    assert len(Prior.load(tmp_path / "cal" / "portfolio.json").questions) == 44
    use = [
        *FAKE[:1],
        *FAKE[2:],
        "method=verified_sampling",
        "limit=2",
        "final=learned",
        "final.prior=cal/portfolio.json",
    ]
    code, _, err = call("run", *use, "hydra.run.dir=used")
    assert code == 0, err
    pooled = [word.replace("learned", "pooled_vote") for word in use]
    rewards = [*pooled[:-2], "reward.pooled=true", "reward.prior=cal/portfolio.json"]
    for words, said in [
        ([*use, "prompt=math"], "final.prior: expected one made with the run's prompt"),
        ([*rewards, "prompt=math"], "reward.prior: expected one made with the run's prompt"),
        ([*pooled, "dataset.offset=100"], "final.prior: expected problems other than those it was made on"),
    ]:
        config = compose_config(words)
        method, dataset = build_method(config), build_dataset(config)
        context = build_context(config, build_engine(config), dataset.exemplars())
        with pytest.raises(UserError, match=said):
            check_fits(config, method, context)
            check_problems(dataset.problems(), method, context)
    code, _, err = call("calibrate", *FAKE, *SMALL, "calibration.runs=[labelled]", "prompt=math")
    assert code == 2 and "calibration.runs: expected runs with this prompt" in err


def test_without_labels_sigma_is_recommended_and_the_temperature_is_not(call, tmp_path):
    changes = [*SMALL[:-2], "calibration.temperatures=[1]", "calibration.reference=answers", SMALL[-1]]
    code, out, err = call("calibrate", *FAKE, *changes, "hydra.run.dir=cal")
    assert code == 0, err
    assert "Recommended: embedding.sigma=" in out and "distinct answers (" in out
    assert "Without labels no temperature is recommended" in out and "chosen without labels" in out
    assert (tmp_path / "cal" / "calibration.md").read_text().count("Recommended") == 1


def test_other_embeddings_are_compared_with_the_runs_own(call, tmp_path):
    changes = [*SMALL[:-3], "calibration.embeddings=[token_simplex,gaussian]", *SMALL[-2:]]
    code, out, err = call("calibrate", *FAKE, *changes, "hydra.run.dir=cal")
    assert code == 0, err
    report = (tmp_path / "cal" / "calibration.md").read_text()
    report = re.sub(" +", " ", report)
    assert "| gaussian |" in report and "| token_simplex |" in report and "Recommended: embedding=" in out


def test_each_choice_of_features_is_compared(call, tmp_path):
    changes = [
        *(one for one in SMALL if not one.startswith(("calibration.features", "calibration.points"))),
        f"calibration.points={SHOWN + 6}", "calibration.features=[point,soft_token,next_token,lookahead]",
    ]  # fmt: skip
    code, out, err = call("calibrate", *FAKE, *changes, "hydra.run.dir=cal")
    assert code == 0, err
    assert "after 10 points" in out.lower()
    report = (tmp_path / "cal" / "calibration.md").read_text()
    assert all(f"| {name} " in report for name in ("point", "soft_token", "next_token", "lookahead"))


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
    ("argument", "said"),
    [
        ("calibration.points=3", "calibration.points: expected a whole number of at least 5"),
        (
            "calibration.features=[point]",
            "calibration.points: expected more than 10 to compare features, got 8",
        ),
        ("calibration.portfolio=99", "expected at most calibration.points=8, got 99"),
        ("calibration.reference=votes", "calibration.reference: expected one of auto, labels, answers"),
        ("calibration.sigmas=2", "calibration.sigmas: expected a list such as [1,2]"),
        ("calibration.embeddings=[nope]", "calibration.embeddings: expected one of gaussian, token_simplex"),
        ("calibration.embeddings=gaussian", "calibration.embeddings: expected a list such as [gaussian]"),
        ("calibration.temperatures=[0]", "calibration.temperatures: expected a finite number above 0"),
        ("method=cot", "expected a method that searches, got method=cot"),
    ],
)
def test_bad_input_gives_one_line(call, argument, said):
    changes = [one for one in SMALL if one.split("=")[0] != argument.split("=")[0]]
    if "portfolio" in argument:
        changes = SMALL
    fake = [one for one in FAKE if argument != "method=cot" or not one.startswith("embedding")]
    code, _, err = call("calibrate", *fake, *changes, argument)
    assert code == 2 and said in err and err.count("\n") == 1
