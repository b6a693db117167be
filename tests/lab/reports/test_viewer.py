"""What the viewer's pages hold: prepared from records, packed, and safe against what models write."""

import re

import pytest
from viewed import GRADER, HOSTILE, data_of, problem, searched, write, write_all

from soft_reasoning.judge.final import FinalAnswer, SearchHistory, stored_verdicts
from soft_reasoning.lab.reports.viewer import files
from soft_reasoning.lab.reports.viewer.formulas import formulas_in
from soft_reasoning.lab.reports.viewer.run import build_entry
from soft_reasoning.lab.runs.grading import final_rule, grade
from soft_reasoning.lab.runs.records import Record
from soft_reasoning.types import Candidate, Result


def entry(result, final=None, gold="3"):
    record = Record.of(problem(1, gold), result, GRADER)
    return build_entry(record, grade(record, GRADER, final).outcome)


def test_a_page_holds_every_problem_with_its_rounds(tmp_path):
    folder = write_all(tmp_path)
    index, details = data_of(folder)
    assert index["rule"] == "reward_vote"
    assert "model m" in index["about"] and len(index["rows"]) == len(details) == 5
    name, _, target, answer, correct, right, many, rounds, tokens, answers = index["rows"][0]
    assert (name, target, answer, correct, right, many, rounds) == ("p0", "3", "3", True, 3, 4, 2)
    assert (tokens, answers) == (70, 2)
    assert [row[4] for row in index["rows"]] == [True, True, False, False, False]
    assert index["rows"][4][3] is None and index["rows"][4][9] == 0
    first, second = details[0]["rounds"]
    card = second["candidates"][1]
    assert card["answer"] == "3" and card["right"] is True and card["reward"] == 0.3
    assert (card["mean"], card["sd"], card["coherence"], card["verified"]) == (0.25, 0.5, 0.5, 1.0)
    assert card["nearest"] == [[["Now", 0.5], [" Here", 0.25]]] and "mean" not in first["candidates"][0]
    assert first["verifier"]["prompts"] == ["Which is right?"] and first["verifier"]["texts"]
    assert first["verifier"]["answers"] == ["3"] and first["verifier"]["right"] == [True]
    assert details[0]["prompt"] == ["<s>Ask me", ""] and details[0]["ended"] == "rounds"


@pytest.mark.parametrize("rule", ["vote", "reward_vote", "borda"])
def test_the_vote_shown_is_the_vote_that_chose(rule):
    final = FinalAnswer(rule, verifier_weight=0.7)
    result = searched("4", ["3", "4", "4.0", "5", "4", "3"], rounds=3, verifier="5")
    votes = entry(result, final)[1]["votes"]
    history = SearchHistory(result.candidates, stored_verdicts(result.trace), GRADER)
    assert votes[0]["answer"] == final.choose(history)
    total = sum(weight for _, weight in final.votes(history))
    assert sum(vote["weight"] for vote in votes) == pytest.approx(total, rel=1e-3)
    by_answer = {vote["answer"]: vote for vote in votes}
    assert by_answer["4"]["candidates"] == 3 and by_answer["4"]["chosen"]
    assert (by_answer["5"]["candidates"], by_answer["5"]["verifier"]) == (1, 3)
    assert by_answer["5"]["by_verifier"] == pytest.approx(0.7 * 3, rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "final"),
    [
        ({"rule": "vote", "keep": 0.5, "_target_": "x.FinalAnswer"}, FinalAnswer("vote", keep=0.5)),
        ({"rule": "vote", "prior": None}, FinalAnswer("vote")),  # an unset option of another version
        ({"rule": "pooled_vote"}, None),
        ({"rule": "vote", "mine": 1}, None),
        (None, None),
    ],
)
def test_the_rule_of_a_stored_run_is_read(settings, final):
    assert final_rule({"method": {"final": settings}}) == final


def test_numbers_that_json_lacks_and_halves_of_letters_survive(tmp_path):
    result = Result("3", (Candidate("\ud83d 3", "3", 0, reward=float("-inf"), coherence=float("nan")),))
    folder = write(tmp_path / "odd", {problem(1): result})
    _, [detail] = data_of(folder)
    [card] = detail["rounds"][0]["candidates"]
    assert (card["reward"], card["coherence"], card["text"]) == ("-inf", "nan", "\ud83d 3")


def test_no_text_of_a_model_reaches_the_page_unpacked(tmp_path):
    text = (write_all(tmp_path) / "report.html").read_text()
    assert "onerror" not in text.split("<script>")[0].replace("&lt;img src=x onerror=&quot;", "")
    assert text.count("<script") == 1 + 2 and HOSTILE not in text
    for place in ("http:", "https:", "innerHTML", "eval(", "//cdn"):
        assert place not in re.sub("http://www.w3.org/(2000/svg|1998/Math/MathML)|http-equiv", "", text)
    assert "default-src 'none'" in text


def test_formulas_are_found_in_texts_and_prices_are_not():
    text = r"So $x=1$, \[y<2\], $$z$$, \boxed{\sqrt{3}}, \(n\), and $5 or $10, or $6."
    found = formulas_in({"texts": [text, ("$x=1$", 1, None)]})
    assert list(found) == ["$x=1$", r"\[y<2\]", "$$z$$", r"\boxed{\sqrt{3}}", r"\(n\)"]
    tag, attributes, [row] = found["$x=1$"]
    assert (tag, attributes["display"]) == ("math", "inline")
    assert row == ["mrow", {}, [["mi", {}, "x"], ["mo", {}, "="], ["mn", {}, "1"]]]
    assert found["$$z$$"][1]["display"] == found[r"\[y<2\]"][1]["display"] == "block"


@pytest.mark.parametrize(
    "source",
    [
        r"\nonsense{x}",
        r"\frac{",
        "x^",
        r"\left( x",
        r"\href{https://example.org}{x}",
        r"\style{color: red}{x}",
        r"\def\a{\a\a}\a",
        "{" * 400 + "x=1" + "}" * 400 + "x" * 300,
    ],
)
def test_what_cannot_be_drawn_safely_stays_as_it_was_written(source):
    assert formulas_in(rf"\({source}\)") == {}


def test_details_lie_in_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SHARD", 2)
    index, details = data_of(write_all(tmp_path))
    assert index["shard"] == 2 and len(index["rows"]) == len(details) == 5
