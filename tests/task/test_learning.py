"""A task is learnt in one call: what is screened, when it stops, what it rewards."""

import json
from dataclasses import replace

import pytest

from soft_reasoning import SoftReasoner
from soft_reasoning.answers import Grader
from soft_reasoning.checks import OptionError
from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.lab.data.demo import FOLDER
from soft_reasoning.method.soft_token import SoftToken
from soft_reasoning.prompts import Prompts, Wording
from soft_reasoning.schedule.method import Context
from soft_reasoning.task import SPACES, Screened, Spread, Tuning
from soft_reasoning.task.learning import rewarded
from soft_reasoning.task.objective import TaskObjective, one_prompt
from soft_reasoning.types import Problem, UserError
from tests.judge.programs.programming import BROKEN, PROBLEM, RIGHT, WRONG, Programmer, world

ONE, OFFSET = "one vector for the first token", "first token + 0.5 rms"
PROBLEMS = [Problem(f"p{i}", f"What is {i} and {i + 3}?", str(i % 4)) for i in range(20)]


@pytest.fixture(scope="module")
def context():
    engine = FakeEngine()
    return Context(engine, Prompts(engine.tokenizer, Wording(ask="{question}\n")), Grader(), seed=0)


def screened(mean, deviation, low, greedy=0.4):
    return Screened("here", greedy, (mean, mean), 1.0, Spread(deviation, low, deviation + 0.02))


def test_a_space_is_promising_if_its_best_points_beat_greedy_decoding_by_more_than_chance():
    assert screened(0.4, 0.05, 0.01).promising
    assert screened(0.4, 0.05, 0.01).reach == pytest.approx(0.1)
    assert not screened(0.4, 0.05, 0.0).promising, "chance alone"
    assert not screened(0.4, 0.005, 0.001).promising, "less than a point or two"
    assert not screened(0.2, 0.1, 0.05).promising, "its points ruin answers"


def test_it_stops_where_nothing_is_to_be_found_unless_told_to_go_on(context):
    tuning = Tuning(space=ONE, points=3, evaluations=12, max_new_tokens=30)
    problems = [replace(problem, gold="no answer") for problem in PROBLEMS]
    seen = []
    learned = tuning.learn(problems, context, on_screened=seen.append)
    assert [one.name for one in learned.screened] == [ONE] and seen == list(learned.screened)
    assert learned.space is None and learned.tuned is None
    learned = replace(tuning, anyway=True).learn(problems, context)
    assert learned.space == ONE and len(learned.tuned.evaluations) == 12
    assert len(learned.tuned.search.rewards) == 8 and len(learned.tuned.validation.rewards) == 12


def test_the_promising_space_of_the_largest_reach_is_searched(context, monkeypatch):
    spaces = [
        Screened(ONE, 0.4, (0.4, 0.4), 1.0, Spread(0.05, 0.01, 0.1)),
        Screened(OFFSET, 0.4, (0.5, 0.5), 1.0, Spread(0.05, 0.01, 0.1)),
        Screened("first token + 1 rms", 0.4, (0.9, 0.9), 1.0, Spread(0.0, 0.0, 0.1)),  # chance alone
    ]
    monkeypatch.setattr("soft_reasoning.task.learning.screen", lambda *_, **__: spaces)
    assert Tuning(evaluations=12, max_new_tokens=20).learn(PROBLEMS, context).space == OFFSET


def test_programs_reward_questions_without_an_answer():
    engine = Programmer([RIGHT, RIGHT, WRONG, BROKEN])
    context = world(engine)[1]
    labelled, other = replace(PROBLEM, id="q", gold="7"), replace(PROBLEM, gold=None)
    pairs = rewarded([labelled, other], context, None, max_new_tokens=100)
    assert pairs == [(labelled, ("7",)), (other, ("15", "15", "11"))]
    assert {request.max_new_tokens for request in engine.asked} == {100}
    assert rewarded([other], world(Programmer([BROKEN]))[1], None, 100) == [], "they teach nothing"


def test_a_point_fits_the_prompt_of_its_questions(context):
    boolean = Prompts(context.engine.tokenizer, Wording(ask="{question} Yes or no?\n"))
    numbers = Prompts(
        context.engine.tokenizer, Wording(ask="{question}\n"), answer_type="number", others=lambda _: boolean
    )
    context = replace(context, prompts=numbers)
    problems = [replace(problem, answer_type="boolean", gold="yes") for problem in PROBLEMS]
    assert one_prompt(PROBLEMS, context) is context
    assert one_prompt(problems, context).prompts.wording is boolean.wording
    with pytest.raises(UserError, match="questions: expected one answer type, got boolean, number; learn"):
        Tuning().learn([*PROBLEMS, *problems], context)
    objective = TaskObjective(problems, SPACES[ONE], context, max_new_tokens=20)
    assert objective.context.prompts.wording is boolean.wording, "an objective asks by that prompt, too"


def test_all_spaces_are_screened_without_a_name(context):
    learned = Tuning(points=2, max_new_tokens=20).learn(
        [replace(problem, gold="no answer") for problem in PROBLEMS[:6]], context
    )
    assert [one.name for one in learned.screened] == list(SPACES)


def test_wrong_values_are_one_line(context):
    with pytest.raises(OptionError, match="space: expected one of one vector"):
        Tuning(space="everywhere")
    with pytest.raises(UserError, match="validation: expected two questions or more .* got 3 with"):
        Tuning().learn(PROBLEMS[:3], context)
    with pytest.raises(UserError, match="programs"):  # questions without answers need them
        Tuning().learn([replace(problem, gold=None) for problem in PROBLEMS], context)


def test_a_reasoner_learns_and_decodes_after_what_it_learnt(tmp_path):
    rows = [json.loads(line) for line in (FOLDER / "validation.jsonl").read_text().splitlines()[:8]]
    with SoftReasoner.from_pretrained("demo", method="cot", max_new_tokens=40) as reasoner:
        problems = [reasoner.problem(row["question"], str(row["answer"])) for row in rows]
        tuning = Tuning(space=OFFSET, points=2, evaluations=12, anyway=True, max_new_tokens=40)
        tuned = tuning.learn(
            problems, reasoner.context, history=tmp_path / "search.jsonl", run=reasoner.run_methods
        ).tuned
        tuned.point.save(tmp_path / "point.json")
        kept = [row["question"] for row in rows[3:]]
        method = SoftToken(point=tmp_path / "point.json", max_new_tokens=40)
        found = reasoner.solve(kept, method=method)
        right = [float(s.answer == p.gold) for s, p in zip(found, problems[3:], strict=True)]
        assert right == list(tuned.validation.rewards)
        sampled = reasoner.solve(kept[:1], method=method, k=3, temperature=1.0)
        assert len(sampled[0].ranked) == 3
    options = {"method": "soft_token", "point": tmp_path / "point.json", "max_new_tokens": 40}
    with SoftReasoner.from_pretrained("demo", **options) as reasoner:
        assert [s.answer for s in reasoner.solve(kept)] == [s.answer for s in found]
