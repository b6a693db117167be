"""A task is learnt in one call: what is screened, when it stops, what it rewards."""

import json
from dataclasses import replace

import pytest

from soft_reasoning import SoftReasoner
from soft_reasoning.checks import OptionError
from soft_reasoning.lab.data.demo import FOLDER
from soft_reasoning.method.soft_token import SoftToken
from soft_reasoning.prompts import Prompts, Wording
from soft_reasoning.task import SPACES, Screened, Spread, TaskObjective, Tuning
from soft_reasoning.types import UserError
from tests.task.world import PROBLEMS, fake_context

ONE, FOUR = "one vector for the first token", "four vectors for the first tokens"
HOPELESS = [replace(problem, gold="no answer") for problem in PROBLEMS[:20]]


@pytest.fixture(scope="module")
def context():
    return fake_context()


def test_it_stops_where_nothing_is_to_be_found_unless_told_to_go_on(context):
    tuning = Tuning(points=2, evaluations=12, max_new_tokens=30)
    seen = []
    learned = tuning.learn(HOPELESS, context, on_screened=seen.append)
    assert [one.name for one in learned.screened] == list(SPACES) and seen == list(learned.screened)
    assert learned.space is None and learned.tuned is None
    learned = replace(tuning, space=ONE, anyway=True).learn(HOPELESS, context)
    assert learned.space == ONE and len(learned.tuned.evaluations) == 12
    assert len(learned.tuned.search.rewards) == 8 and len(learned.tuned.validation.rewards) == 12


def test_the_promising_space_of_the_largest_reach_is_searched(context, monkeypatch):
    found, chance = Spread(0.05, 0.01, 0.1), Spread(0.0, 0.0, 0.1)
    screened = {ONE: Screened(ONE, 0.4, (0.4, 0.4), found), FOUR: Screened(FOUR, 0.4, (0.9, 0.9), found)}
    monkeypatch.setattr("soft_reasoning.task.tuning.screen", lambda name, *_, **__: screened[name])
    assert Tuning(evaluations=12, max_new_tokens=20).learn(PROBLEMS, context).space == FOUR
    screened[FOUR] = replace(screened[FOUR], spread=chance)
    assert Tuning(evaluations=12, max_new_tokens=20).learn(PROBLEMS, context).space == ONE


def test_a_question_is_on_one_side_of_the_split_only(context, caplog):
    """Repeats differ in white space and case alone."""
    repeats = [replace(p, id=f"again {p.id}", question=f" {p.question.upper()}\n") for p in HOPELESS]
    tuning = Tuning(space=ONE, points=2, evaluations=12, anyway=True, max_new_tokens=20)
    found, alone = (tuning.learn(asked, context).tuned for asked in ([*HOPELESS, *repeats], HOPELESS))
    assert found == alone and len(set(found.point.questions.values())) == 20
    assert "20 of 40 questions repeat others" in caplog.text
    with pytest.raises(UserError, match="20 that it was"):
        found.point.check_unseen(repeats)


def test_a_point_fits_the_prompt_of_its_questions(context):
    boolean = Prompts(context.engine.tokenizer, Wording(ask="{question} Yes or no?\n"))
    numbers = Prompts(
        context.engine.tokenizer, Wording(ask="{question}\n"), answer_type="number", others=lambda _: boolean
    )
    context = replace(context, prompts=numbers)
    problems = [replace(problem, answer_type="boolean", gold="yes") for problem in PROBLEMS]
    with pytest.raises(UserError, match="questions: expected one answer type, got boolean, number; learn"):
        Tuning().learn([*PROBLEMS, *problems], context)
    objective = TaskObjective(problems, SPACES[ONE], context, max_new_tokens=20)
    assert objective.context.prompts.wording is boolean.wording


def test_wrong_values_are_one_line(context):
    with pytest.raises(OptionError, match="space: expected one of one vector"):
        Tuning(space="everywhere")
    with pytest.raises(UserError, match="validation: expected two questions or more .* got 3 with"):
        Tuning().learn(PROBLEMS[:3], context)
    with pytest.raises(UserError, match="validation: expected two .* got 0 with an answer"):
        Tuning().learn([replace(problem, gold=None) for problem in PROBLEMS], context)


def test_a_reasoner_learns_and_decodes_after_what_it_learnt(tmp_path):
    rows = [json.loads(line) for line in (FOLDER / "validation.jsonl").read_text().splitlines()[:8]]
    with SoftReasoner.from_pretrained("demo", method="cot", max_new_tokens=40) as reasoner:
        problems = [reasoner.problem(row["question"], str(row["answer"])) for row in rows]
        tuning = Tuning(space=FOUR, points=2, evaluations=12, anyway=True, max_new_tokens=40)
        tuned = tuning.learn(problems, reasoner.context, run=reasoner.run_methods).tuned
        tuned.point.save(tmp_path / "point.json")
        kept = [row["question"] for row in rows[3:]]
        method = SoftToken(point=tmp_path / "point.json", max_new_tokens=40)
        found = reasoner.solve(kept, method=method)
        right = [float(s.answer == p.gold) for s, p in zip(found, problems[3:], strict=True)]
        assert right == list(tuned.validation.rewards)
        sampled = reasoner.solve(kept[:1], method=method, k=3, temperature=1.0)
        assert len(sampled[0].ranked) == 3
