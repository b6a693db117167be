"""What a run's page holds: rendered from records, packed, and safe against what models write."""

import re

import pytest
from viewed import GRADER, HOSTILE, page_of, problem, searched, write, write_all

from soft_reasoning.judge.final import FinalAnswer, SearchHistory, stored_verdicts
from soft_reasoning.lab.reports.page import kind_of
from soft_reasoning.lab.runs.grading import final_rule, grade
from soft_reasoning.lab.runs.records import Record
from soft_reasoning.types import Candidate, Result


def graded(result, final=None, gold="3"):
    record = Record.new(problem(1, gold), result, GRADER)
    return record, grade(record, GRADER, final)


def facts(article):
    """The names and values of the facts in an article, card by card."""
    cards = article.split('<article class="panel')[1:]
    return [dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", card)) for card in cards]


def test_a_problem_s_line_says_what_became_of_it():
    for answer, answers, gold, kind in (
        ("3", ["3", "4"], "3", "right"),
        ("4", ["3", "4"], "3", "lost"),
        ("5", ["4", "5"], "3", "wrong"),
        (None, [None, None], "3", "unparsed"),
        ("4", ["4", "4"], None, "open"),
    ):
        assert kind_of(graded(searched(answer, answers), gold=gold)[1]) == kind


def test_a_page_holds_every_problem_with_its_rounds(tmp_path):
    text, articles = page_of(write_all(tmp_path))
    assert "model m" in text and len(articles) == text.count("<tr data-kind") == 5
    first, _, third, fourth = facts(articles[0])
    assert fourth == {
        "reward": "0.300",
        "verdict": "1.000",
        "coherence": "0.500",
        "expected": "0.250",
        "deviation": "0.500",
        "tokens": "7",
    }
    assert "expected" not in first and "<code>␣Here</code> 0.25" in articles[0]
    for part in (
        "Rule: reward_vote.",
        "&lt;s&gt;Ask me<mark",
        "Which is right?",
        "ended: rounds",
        "verifier 2×",
        "same text as candidate 1",
    ):
        assert part in articles[0], part
    assert "no answer" in articles[4]


def test_the_vote_shown_is_the_vote_that_chose():
    final = FinalAnswer("reward_vote", verifier_weight=0.7)
    result = searched("4", ["3", "4", "4.0", "5", "4", "3"], rounds=3, verifier="5")
    votes = graded(result, final)[1].votes
    history = SearchHistory(result.candidates, stored_verdicts(result.trace), GRADER)
    assert votes[0]["answer"] == final.choose(history)
    total = sum(weight for _, weight in final.votes(history))
    assert sum(vote["weight"] for vote in votes) == pytest.approx(total, rel=1e-3)
    by_answer = {vote["answer"]: vote for vote in votes}
    assert by_answer["4"]["candidates"] == 3 and by_answer["4"]["chosen"]
    assert (by_answer["5"]["candidates"], by_answer["5"]["verifier"]) == (1, 3)


def test_the_rule_of_a_stored_run_is_read():
    settings = {"rule": "vote", "verifier_weight": 2, "_target_": "x.FinalAnswer"}
    assert final_rule({"method": {"final": settings}}) == FinalAnswer("vote", 2)
    for unknown in ({"rule": "pooled_vote"}, {"rule": "vote", "mine": 1}, None):
        assert final_rule({"method": {"final": unknown}}) is None


def test_numbers_that_json_lacks_and_halves_of_letters_survive(tmp_path):
    result = Result("3", (Candidate("\ud83d 3", "3", 0, reward=float("-inf"), coherence=float("nan")),))
    folder = write(tmp_path / "odd", {problem(1): result})
    _, [article] = page_of(folder)
    [card] = facts(article)
    assert (card["reward"], card["coherence"]) == ("-inf", "nan") and "\ud83d 3" in article


def test_no_text_of_a_model_is_read_as_html(tmp_path):
    text, articles = page_of(write_all(tmp_path))
    assert text.count("<script") == 1 and HOSTILE not in text + "".join(articles)
    assert not any(re.search(r"<(script|img|a [^>]*onerror)", article) for article in articles)
    assert "&lt;img src=x onerror=&#34;" in articles[0] and "&lt;img src=x onerror=&#34;" in text
    assert "default-src 'none'" in text
