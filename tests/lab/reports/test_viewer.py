"""What the viewer's pages hold: rendered from records, packed, and safe against what models write."""

import re

import pytest
from markupsafe import escape
from viewed import GRADER, HOSTILE, page_of, problem, searched, write, write_all

from soft_reasoning.judge.final import FinalAnswer, SearchHistory, stored_verdicts
from soft_reasoning.lab.reports.viewer import page
from soft_reasoning.lab.reports.viewer.formulas import with_formulas
from soft_reasoning.lab.reports.viewer.page import Row, bars_of, columns_of
from soft_reasoning.lab.runs.grading import final_rule, grade
from soft_reasoning.lab.runs.records import Record
from soft_reasoning.types import Candidate, Result


def graded(result, final=None, gold="3"):
    record = Record.of(problem(1, gold), result, GRADER)
    return record, grade(record, GRADER, final).outcome


def facts(article):
    """The names and values of the facts in an article, card by card."""
    cards = article.split('<article class="card')[1:]
    return [dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", card)) for card in cards]


def test_a_problem_s_line_says_what_became_of_it():
    search = searched("3", ["3", "4", "3", "3"], rounds=2, verifier="3")
    row = Row.of(*graded(search))
    assert (row.id, row.gold, row.answer, row.correct) == ("p1", "3", "3", True)
    assert (row.right, row.candidates, row.rounds, row.tokens, row.answers) == (3, 4, 2, 70, 2)
    assert row.kind == "right" and row.shown_by == "all right split"
    for answer, answers, gold, kind in (
        ("4", ["3", "4"], "3", "lost"),
        ("5", ["4", "5"], "3", "wrong"),
        (None, [None, None], "3", "unparsed"),
        ("4", ["4", "4"], None, "open"),
    ):
        assert Row.of(*graded(searched(answer, answers), gold=gold)).kind == kind


def test_a_page_holds_every_problem_with_its_rounds(tmp_path):
    text, articles = page_of(write_all(tmp_path))
    assert "model m" in text and len(articles) == text.count("<tr data-shown-by") == 5
    first, _, third, fourth = facts(articles[0])
    assert fourth == {
        "reward": "0.30",
        "verdict": "1.00",
        "coherence": "0.500",
        "expected": "0.25 ± 0.50",
        "tokens": "7",
    }
    assert "expected" not in first and "␣Here<small>0.25</small>" in articles[0]
    for part in (
        "Rule: reward_vote.",
        "&lt;s&gt;Ask me<span",
        "Which is right?",
        "ended: rounds",
        "verifier twice",
    ):
        assert part in articles[0], part
    assert "same text as" in articles[0] and "no answer" in articles[4]


def test_a_card_knows_its_reward_s_shade_and_the_first_with_its_text():
    one, two = columns_of(*graded(searched("3", ["3", "4", "3", "3"], rounds=2, verifier="3")))
    assert [card.same for column in (one, two) for card in column.cards] == [None, None, 1, 1]
    assert [card.shade for column in (one, two) for card in column.cards] == [0, 33, 67, 100]
    assert two.mean_reward == pytest.approx(0.25) and two.right == (True,)


@pytest.mark.parametrize("rule", ["vote", "reward_vote", "borda"])
def test_the_vote_shown_is_the_vote_that_chose(rule):
    final = FinalAnswer(rule, verifier_weight=0.7)
    result = searched("4", ["3", "4", "4.0", "5", "4", "3"], rounds=3, verifier="5")
    votes = graded(result, final)[1].votes
    history = SearchHistory(result.candidates, stored_verdicts(result.trace), GRADER)
    assert votes[0].answer == final.choose(history)
    total = sum(weight for _, weight in final.votes(history))
    assert sum(vote.weight for vote in votes) == pytest.approx(total, rel=1e-3)
    by_answer = {vote.answer: vote for vote in votes}
    assert by_answer["4"].candidates == 3 and by_answer["4"].chosen
    assert (by_answer["5"].candidates, by_answer["5"].verifier) == (1, 3)
    assert by_answer["5"].by_verifier == pytest.approx(0.7 * 3, rel=1e-3)
    assert max(own + verifier for _, own, verifier in bars_of(votes)) in (99, 100, 101)  # rounded


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
    _, [article] = page_of(folder)
    [card] = facts(article)
    assert (card["reward"], card["coherence"]) == ("-inf", "nan") and "\ud83d 3" in article


def test_no_text_of_a_model_is_read_as_html(tmp_path):
    text, articles = page_of(write_all(tmp_path))
    assert text.count("<script") == 1 + 1 and HOSTILE not in text + "".join(articles)
    assert not any(re.search(r"<(script|img|a [^>]*onerror)", article) for article in articles)
    assert "&lt;img src=x onerror=&#34;" in articles[0] and "&lt;img src=x onerror=&#34;" in text
    for place in ("http:", "https:", "innerHTML", "eval(", "//cdn"):
        assert place not in re.sub("http://www.w3.org/(2000/svg|1998/Math/MathML)|http-equiv", "", text)
    assert "default-src 'none'" in text


def test_formulas_are_found_in_texts_and_prices_are_not():
    text = r"So $x=1$, \[y<2\], $$z$$, \boxed{\sqrt{3}}, \(n\), and <b> $5 or $10, or $6."
    found = with_formulas(text)
    titles = [r"$x=1$", r"\[y<2\]", "$$z$$", r"\boxed{\sqrt{3}}", r"\(n\)"]
    assert re.findall(r'<math[^>]* title="([^"]*)"', found) == titles
    assert re.findall(r'<math[^>]*display="(\w+)"', found) == ["inline", "block", "block", "inline", "inline"]
    assert "<mrow><mi>x</mi><mo>=</mo><mn>1</mn></mrow>" in found and "<mo>&lt;</mo>" in found
    assert found.endswith("and &lt;b&gt; $5 or $10, or $6.")


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
    assert with_formulas(rf"\({source}\)") == escape(rf"\({source}\)")


def test_articles_lie_in_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "SHARD", 2)
    text, articles = page_of(write_all(tmp_path))
    assert text.count('class="shard" data-size="2"') == 3 and len(articles) == 5
